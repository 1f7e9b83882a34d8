// SPDX-License-Identifier: Apache-2.0
#include "ebb/store/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <system_error>

#include "ebb/core/error.h"
#include "ebb/device/buffer.h"

namespace ebb {
namespace {

std::string text(int error) { return std::generic_category().message(error); }

// Where the file system knows no unnamed files one is named and the name removed at once.
int open_unnamed(const std::string& directory) {
  const int fd = ::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return fd;
  std::string path = directory + "/.ebb-XXXXXX";
  const int named = ::mkostemp(path.data(), O_CLOEXEC);
  if (named >= 0) ::unlink(path.c_str());
  return named;
}

}  // namespace

FileCalls& file_calls() {
  static FileCalls calls{::pread, ::pwrite, ::fallocate, [](int result) { return result; }};
  return calls;
}

void fail_io(const UnnamedFile& file, const char* call, Bytes offset, int error) {
  fail(ErrorCode::io, "file tier in ", file.directory(), ": ", call, " at byte ", offset, ": ",
       text(error));
}

UnnamedFile::UnnamedFile(const std::string& directory, bool direct) : directory_(directory) {
  buffered_ = open_unnamed(directory);
  if (buffered_ < 0) {
    fail(ErrorCode::io, "file tier: no file in directory '", directory, "': ", text(errno),
         "; name a directory that exists and can be written");
  }
  if (!direct) return;
  const std::string self = "/proc/self/fd/" + std::to_string(buffered_);
  direct_ = ::open(self.c_str(), O_RDWR | O_CLOEXEC | O_DIRECT);
}

UnnamedFile::~UnnamedFile() {
  if (direct_ >= 0) ::close(direct_);
  if (buffered_ >= 0) ::close(buffered_);
}

void UnnamedFile::reserve(Bytes bytes) {
  if (bytes == 0 || file_calls().fallocate(buffered_, 0, 0, bytes) == 0) return;
  int error = errno;
  struct statvfs free{};
  const bool known = ::fstatvfs(buffered_, &free) == 0;
  const Bytes room =
      known ? scale_bytes(static_cast<Bytes>(free.f_bavail), static_cast<Bytes>(free.f_frsize)) : 0;
  // Not every file system can reserve; then free space now is all that can be known.
  if (error == EOPNOTSUPP && room >= bytes && ::ftruncate(buffered_, bytes) == 0) return;
  if (error == EOPNOTSUPP) error = ENOSPC;
  fail(ErrorCode::io, "file tier in ", directory_, ": ", format_bytes(bytes),
       " are needed: ", text(error), ", ", format_bytes(room),
       " are free; name another directory or a smaller capacity");
}

int UnnamedFile::descriptor(Bytes offset, const void* data, std::size_t bytes) const {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  const bool aligned = (static_cast<std::uintptr_t>(offset) | address | bytes) % kPage == 0;
  return aligned && direct_ >= 0 ? direct_ : buffered_;
}

}  // namespace ebb
