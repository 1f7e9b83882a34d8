// SPDX-License-Identifier: Apache-2.0
#include "ebb/train/npy_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "ebb/core/error.h"
#include "ebb/store/file.h"

namespace ebb {
namespace {

constexpr int kMostLinks = 40;

// Where a link leads, whether there is something or not. What is no file must not be replaced by one.
std::filesystem::path checked(std::filesystem::path path) {
  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    fail(ErrorCode::invalid_argument, "'", path.string(), "' is there and no file; name one");
  }
  for (int links = 0; links < kMostLinks && std::filesystem::is_symlink(path, ignored); ++links) {
    path = path.parent_path() / std::filesystem::read_symlink(path, ignored);
  }
  return path;
}

std::filesystem::path path_beside(std::filesystem::path path) {
  path += "." + std::to_string(::getpid()) + std::string(kUnfinished);
  return path;
}

int open_new(const std::filesystem::path& path) {
  const int fd = file_calls().open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) fail_file(path, "opened", errno);
  return fd;
}

// Version 1.0, of a whole number of 64 bytes.
std::string npy_header(std::string_view type, std::span<const std::int64_t> shape) {
  constexpr std::size_t before = 10, whole = 64;
  std::string text = "{'descr': '" + std::string(type) + "', 'fortran_order': False, 'shape': (";
  for (const std::int64_t size : shape) text += std::to_string(size) + ",";
  text += ")}";
  text.append(whole - (before + text.size() + 1) % whole, ' ');
  text += '\n';
  std::string file("\x93NUMPY\x01\x00", 8);
  file += static_cast<char>(text.size() & 0xff);
  file += static_cast<char>(text.size() >> 8);
  return file + text;
}

}  // namespace

NpyOutput::NpyOutput(const std::filesystem::path& path, std::string_view type,
                     std::size_t number_bytes, std::span<const std::int64_t> shape)
    : path_(checked(path)),
      beside_(path_beside(path_)),
      file_(open_new(beside_)),
      number_bytes_(number_bytes) {
  const std::string header = npy_header(type, shape);
  write_at(file_, path_, 0, std::as_bytes(std::span(header)));
  header_ = std::ssize(header);
}

NpyOutput::~NpyOutput() {
  std::error_code ignored;
  if (!is_finished_) std::filesystem::remove(beside_, ignored);
}

void NpyOutput::write(std::int64_t first, std::span<const std::byte> numbers) {
  write_at(file_, path_, header_ + first * static_cast<std::int64_t>(number_bytes_), numbers);
}

void NpyOutput::finish() {
  rename_file(beside_, path_);
  is_finished_ = true;
}

}  // namespace ebb
