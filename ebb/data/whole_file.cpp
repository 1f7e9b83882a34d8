// SPDX-License-Identifier: Apache-2.0
#include "ebb/data/whole_file.h"

#include <algorithm>
#include <fstream>
#include <new>
#include <system_error>

#include "ebb/core/error.h"
#include "ebb/data/files_read.h"

namespace ebb {
namespace {

std::vector<std::byte> room_for(const std::string& name, std::uintmax_t size) {
  try {
    return std::vector<std::byte>(static_cast<std::size_t>(size));
  } catch (const std::bad_alloc&) {
    fail(ErrorCode::out_of_memory, name, ": no memory for its ", size, " bytes");
  }
}

}  // namespace

void check_is_file(const std::filesystem::path& path, std::string_view origin) {
  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);
  if (!std::filesystem::exists(status)) {
    fail(ErrorCode::io, "there is no file ", path.string(), "; ", origin);
  }
  if (!std::filesystem::is_regular_file(status)) {
    fail(ErrorCode::io, path.string(), " is not a file; ", origin);
  }
}

std::vector<std::byte> read_file(const std::filesystem::path& path, std::string_view origin,
                                 Bytes most) {
  check_is_file(path, origin);
  const std::string name = path.string();
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error) fail(ErrorCode::io, name, ": ", error.message());
  if (size > static_cast<std::uintmax_t>(most)) {
    fail(ErrorCode::invalid_argument, name, ": ", size, " bytes; at most ", most, " are allowed");
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(ErrorCode::io, name, ": it cannot be opened for reading");
  std::vector<std::byte> bytes = room_for(name, size);
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size));
  if (!file) {
    fail(ErrorCode::io, name, ": only ", file.gcount(), " of ", size, " bytes could be read");
  }
  note_file(path, bytes);
  return bytes;
}

std::vector<std::filesystem::path> files_in(const std::filesystem::path& folder,
                                            std::string_view ending, std::string_view origin) {
  std::error_code error;
  std::vector<std::filesystem::path> found;
  std::filesystem::directory_iterator entry(folder, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    if (entry->path().filename().string().ends_with(ending)) found.push_back(entry->path());
  }
  if (error) {
    fail(ErrorCode::io, "folder ", folder.string(), ": ", error.message(), "; ", origin);
  }
  std::ranges::sort(found);
  return found;
}

bool is_there(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

}  // namespace ebb
