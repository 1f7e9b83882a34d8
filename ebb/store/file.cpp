// SPDX-License-Identifier: Apache-2.0
#include "ebb/store/file.h"

#include <fcntl.h>
#include <sys/resource.h>
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
  const int fd = file_calls().open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return fd;
  std::string path = directory + "/.ebb-XXXXXX";
  const int named = ::mkostemp(path.data(), O_CLOEXEC);
  if (named < 0 || ::unlink(path.c_str()) == 0) return named;
  const int error = errno;
  ::close(named);
  errno = error;
  return -1;
}

Bytes room_beside(int fd) {
  struct statvfs free{};
  if (::fstatvfs(fd, &free) != 0) return 0;
  return scale_bytes(static_cast<Bytes>(free.f_bavail), static_cast<Bytes>(free.f_frsize));
}

// 0, or what is wrong.
int take(int fd, Bytes bytes) {
  while (file_calls().fallocate(fd, 0, 0, bytes) != 0) {
    if (errno == EINTR) continue;
    if (errno != EOPNOTSUPP) return errno;
    // Not every file system can reserve; then free space now is all that can be known.
    if (room_beside(fd) < bytes) return ENOSPC;
    return ::ftruncate(fd, bytes) == 0 ? 0 : errno;
  }
  return 0;
}

}  // namespace

FileCalls& file_calls() {
  static FileCalls calls{
      [](const char* path, int flags, mode_t mode) { return ::open(path, flags, mode); }, ::pread,
      ::pwrite, ::fallocate, [](int result) { return result; }};
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
  direct_ = file_calls().open(self.c_str(), O_RDWR | O_CLOEXEC | O_DIRECT, 0);
  // Reading ahead would cache bytes that are being written past the cache.
  if (direct_ >= 0) ::posix_fadvise(buffered_, 0, 0, POSIX_FADV_RANDOM);
}

UnnamedFile::~UnnamedFile() {
  if (direct_ >= 0) ::close(direct_);
  if (buffered_ >= 0) ::close(buffered_);
}

void UnnamedFile::reserve(Bytes bytes) {
  if (bytes == 0) return;
  // Beyond it the system would end the process.
  rlimit most{};
  if (::getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur < static_cast<rlim_t>(bytes)) {
    fail(ErrorCode::io, "file tier in ", directory_, ": ", format_bytes(bytes),
         " are needed, and this process may write files of ", most.rlim_cur,
         " bytes; raise its limit (ulimit -f) or name a smaller capacity");
  }
  const int error = take(buffered_, bytes);
  if (error == 0) {
    try_direct();
    return;
  }
  fail(ErrorCode::io, "file tier in ", directory_, ": ", format_bytes(bytes),
       " are needed: ", text(error), ", ", format_bytes(room_beside(buffered_)),
       " are free; name another directory or a smaller capacity");
}

// Some file systems open files for direct I/O and then refuse it, or want more than whole pages.
void UnnamedFile::try_direct() {
  alignas(kPage) std::byte page[kPage];
  if (direct_ < 0 || file_calls().pread(direct_, page, sizeof page, 0) >= 0) return;
  if (errno != EINVAL && errno != EOPNOTSUPP) return;
  ::close(direct_);
  direct_ = -1;
}

UnnamedFile::Call UnnamedFile::call(Bytes offset, const void* data, std::size_t bytes) const {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  const bool aligned = (static_cast<std::uintptr_t>(offset) | address) % kPage == 0;
  const std::size_t pages = bytes - bytes % kPage;
  return aligned && pages > 0 && direct_ >= 0 ? Call{direct_, pages} : Call{buffered_, bytes};
}

}  // namespace ebb
