// SPDX-License-Identifier: Apache-2.0
#include "ebb/train/durable_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

#include "ebb/core/checksum.h"
#include "ebb/core/error.h"
#include "ebb/store/file.h"

namespace ebb {
namespace {

int open_file(const std::filesystem::path& path, int flags, std::string_view doing) {
  const int fd = file_calls().open(path.c_str(), flags | O_CLOEXEC, 0666);
  if (fd < 0) fail_file(path, doing, errno);
  return fd;
}

}  // namespace

void fail_file(const std::filesystem::path& path, std::string_view doing, int error) {
  fail(ErrorCode::io, "'", path.string(), "' cannot be ", doing, ": ",
       std::generic_category().message(error));
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

void write_at(const Descriptor& file, const std::filesystem::path& path, Bytes place,
              std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t done = file_calls().pwrite(file.get(), bytes.data(), bytes.size(), place);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) fail_file(path, "written", done < 0 ? errno : EIO);
    place += done;
    bytes = bytes.subspan(static_cast<std::size_t>(done));
  }
}

NewFile::NewFile(std::filesystem::path path)
    : path_(std::move(path)), file_(open_file(path_, O_WRONLY | O_CREAT | O_TRUNC, "written")) {}

void NewFile::write(std::span<const std::byte> bytes) {
  checksum_ = crc32c(bytes, checksum_);
  write_at(file_, path_, bytes_, bytes);
  bytes_ += static_cast<Bytes>(bytes.size());
}

void NewFile::sync() {
  if (::fsync(file_.get()) != 0) fail_file(path_, "written", errno);
}

void rename_file(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) fail_file(to, "replaced", errno);
}

void sync_directory(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory.empty() ? "." : directory;
  const Descriptor opened(open_file(path, O_RDONLY | O_DIRECTORY, "opened"));
  // Some file systems cannot sync a directory and say so.
  if (::fsync(opened.get()) != 0 && errno != EINVAL) fail_file(directory, "synced", errno);
}

void replace_file(const std::filesystem::path& path, std::string_view content) {
  std::filesystem::path unfinished = path;
  unfinished += kUnfinished;
  {
    NewFile file(unfinished);
    file.write(std::as_bytes(std::span(content.data(), content.size())));
    file.sync();
  }
  rename_file(unfinished, path);
  sync_directory(path.parent_path());
}

bool file_exists(const std::filesystem::path& path) {
  // What is there and cannot be reached is for read_file to complain about.
  return ::access(path.c_str(), F_OK) == 0 || errno != ENOENT;
}

std::vector<std::string> names_in(const std::filesystem::path& directory) {
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::directory_iterator entry(directory, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (error) fail_file(directory, "listed", error.value());
  return names;
}

OldFile::OldFile(std::filesystem::path path)
    : path_(std::move(path)), file_(open_file(path_, O_RDONLY, "read")) {
  struct stat status{};
  if (::fstat(file_.get(), &status) != 0) fail_file(path_, "read", errno);
  if (!S_ISREG(status.st_mode)) fail_file(path_, "read", EISDIR);
  bytes_ = status.st_size;
}

void OldFile::read(std::size_t from, std::span<std::byte> to) const {
  while (!to.empty()) {
    const ssize_t done =
        file_calls().pread(file_.get(), to.data(), to.size(), static_cast<off_t>(from));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) fail_file(path_, "read", done < 0 ? errno : EIO);
    from += static_cast<std::size_t>(done);
    to = to.subspan(static_cast<std::size_t>(done));
  }
}

std::vector<std::byte> read_file(const std::filesystem::path& path) {
  const OldFile file(path);
  std::vector<std::byte> bytes(static_cast<std::size_t>(file.bytes()));
  file.read(0, bytes);
  return bytes;
}

}  // namespace ebb
