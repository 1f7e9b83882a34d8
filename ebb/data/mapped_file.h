// SPDX-License-Identifier: Apache-2.0
// A file as memory, read from disk as it is used: it may be larger than memory. Private.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

namespace ebb {

class MappedFile {
 public:
  // Throws Error(io) for a file that is missing, with `origin`, which says where to get it, or that
  // cannot be read. The file must not be made shorter meanwhile.
  MappedFile(const std::filesystem::path& path, std::string_view origin);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

// Of bytes of such a file: what was read of them no longer counts as memory of this process.
void forget(std::span<const std::byte> mapped);

}  // namespace ebb
