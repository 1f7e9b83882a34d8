// SPDX-License-Identifier: Apache-2.0
// Takes the fingerprint of what is read while a task is made. Private.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "ebb/data/fingerprint.h"

namespace ebb {

// While it lives, files that this thread reads count. One may live within another, which hears nothing
// meanwhile.
class FilesRead {
 public:
  // The name of a file that is `data` itself does not count: the caller chose it.
  explicit FilesRead(std::filesystem::path data);
  FilesRead(const FilesRead&) = delete;
  FilesRead& operator=(const FilesRead&) = delete;
  ~FilesRead();

  const DataFingerprint& fingerprint() const { return fingerprint_; }
  void add(const std::filesystem::path& path, std::span<const std::byte> content);

 private:
  std::filesystem::path data_;
  DataFingerprint fingerprint_;
  FilesRead* before_;
};

// A reader calls it for each file that it has read, or mapped.
void note_file(const std::filesystem::path& path, std::span<const std::byte> content);

}  // namespace ebb
