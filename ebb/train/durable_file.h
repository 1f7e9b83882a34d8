// SPDX-License-Identifier: Apache-2.0
// Files that are whole or not there, whatever happens to the process or the machine. Private.
//
// Everything here throws Error(io) that names the path and what the system says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/core/bytes.h"

namespace ebb {

// Owns a descriptor.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor();

  int get() const { return fd_; }

 private:
  int fd_;
};

// Writes all of them at that place; `path` is for errors.
void write_at(const Descriptor& file, const std::filesystem::path& path, Bytes place,
              std::span<const std::byte> bytes);

// A file that is being written, made anew or emptied.
class NewFile {
 public:
  explicit NewFile(std::filesystem::path path);

  void write(std::span<const std::byte> bytes);
  // After it the bytes survive a loss of power; the name does once its directory is synced.
  void sync();
  Bytes bytes() const { return bytes_; }
  std::uint32_t checksum() const { return checksum_; }  // crc32c

 private:
  std::filesystem::path path_;
  Descriptor file_;
  Bytes bytes_ = 0;
  std::uint32_t checksum_ = 0;
};

// Writes beside `path`, under its name with kUnfinished, and renames: `path` has either its old or
// its new content, also after a loss of power.
void replace_file(const std::filesystem::path& path, std::string_view content);
inline constexpr std::string_view kUnfinished = ".tmp";

void rename_file(const std::filesystem::path& from, const std::filesystem::path& to);
void sync_directory(const std::filesystem::path& directory);
bool file_exists(const std::filesystem::path& path);
std::vector<std::string> names_in(const std::filesystem::path& directory);
std::vector<std::byte> read_file(const std::filesystem::path& path);

// A file that is read in pieces. It stays what it is while another one gets its name.
class OldFile {
 public:
  explicit OldFile(std::filesystem::path path);

  Bytes bytes() const { return bytes_; }
  // Throws too where the file ends before `to` does.
  void read(std::size_t from, std::span<std::byte> to) const;

 private:
  std::filesystem::path path_;
  Descriptor file_;
  Bytes bytes_ = 0;
};

[[noreturn]] void fail_file(const std::filesystem::path& path, std::string_view doing, int error);

}  // namespace ebb
