// SPDX-License-Identifier: Apache-2.0
// A file without a name, and the system calls that move its bytes. Private.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "ebb/core/bytes.h"

namespace ebb {

// The system calls that can go wrong, so that tests can make them.
struct FileCalls {
  int (*open)(const char* path, int flags, mode_t mode);
  ssize_t (*pread)(int, void*, std::size_t, off_t);
  ssize_t (*pwrite)(int, const void*, std::size_t, off_t);
  int (*fallocate)(int, int, off_t, off_t);
  // What io_uring's completion says, before anybody looks at it.
  int (*completion)(int result);
};
// Those of the system. Tests may change them while no run is under way.
FileCalls& file_calls();

// Owns the descriptors.
class UnnamedFile {
 public:
  // Throws Error(io): the directory is missing, not writable, or has no room for files.
  UnnamedFile(const std::string& directory, bool direct);
  UnnamedFile(const UnnamedFile&) = delete;
  UnnamedFile& operator=(const UnnamedFile&) = delete;
  ~UnnamedFile();

  // Throws Error(io) when the file system has not that many bytes free.
  void reserve(Bytes bytes);
  // How to begin a transfer: the descriptor, past the page cache if that is possible, and how many
  // of the bytes go through it; the rest begins anew.
  struct Call {
    int descriptor = -1;
    std::size_t bytes = 0;
  };
  Call call(Bytes offset, const void* data, std::size_t bytes) const;
  const std::string& directory() const { return directory_; }

 private:
  void try_direct();

  std::string directory_;
  int buffered_ = -1;
  int direct_ = -1;  // -1: not asked for, or the file system has none
};

// Moves a whole range or throws Error(io); interrupted and partial calls are continued.
class FileMover {
 public:
  virtual ~FileMover() = default;
  // Before the first transfer.
  virtual void expect(std::span<std::byte> memory) { static_cast<void>(memory); }
  virtual void write(const UnnamedFile& file, Bytes offset, std::span<const std::byte> bytes) = 0;
  virtual void read(const UnnamedFile& file, Bytes offset, std::span<std::byte> bytes) = 0;
};
std::unique_ptr<FileMover> thread_mover();
// For that many threads at a time; more work too, but open what they need as they come. null: not
// in this build or not on this machine.
std::unique_ptr<FileMover> uring_mover(int threads);

[[noreturn]] void fail_io(const UnnamedFile& file, const char* call, Bytes offset, int error);

}  // namespace ebb
