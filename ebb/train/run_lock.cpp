// SPDX-License-Identifier: Apache-2.0
#include "ebb/train/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <string>
#include <system_error>
#include <utility>

#include "ebb/core/error.h"
#include "ebb/core/words.h"
#include "ebb/train/checkpoint_index.h"
#include "ebb/train/durable_file.h"
#include "ebb/train/ranks.h"

namespace ebb {
namespace {

constexpr const char* kLockFile = "lock";

// "process 1234 on host here since 2026-01-31 12:00:00 UTC"
std::string this_process() {
  char host[256] = "", since[64] = "";
  ::gethostname(host, sizeof host - 1);
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  std::strftime(since, sizeof since, "%Y-%m-%d %H:%M:%S UTC", &utc);
  return "process " + std::to_string(::getpid()) + " on host " + host + " since " + since;
}

std::string holder(int fd) {
  char text[512] = "";
  const ssize_t size = ::pread(fd, text, sizeof text, 0);
  // The holder writes after it has locked, so there may be nothing yet.
  return size <= 0 ? "another process" : shown({text, static_cast<std::size_t>(size)});
}

}  // namespace

RunLock::RunLock(std::filesystem::path directory, bool resumes, Ranks& ranks)
    : directory_(std::move(directory)) {
  if (ranks.rank() == 0) {
    if (!resumes) {
      std::error_code error;
      std::filesystem::create_directories(directory_, error);
      if (error) {
        fail(ErrorCode::io, "cannot make the directory ", directory_.string(), ": ",
             error.message());
      }
    } else if (!file_exists(directory_ / kLockFile)) {
      // A directory that was named by mistake gets no file.
      check_has_checkpoint(directory_);
    }
    take();
  }
  ranks.any(false);  // returns when all are here
}

RunLock::RunLock(std::filesystem::path directory) : directory_(std::move(directory)) { take(); }

void RunLock::take() {
  const std::filesystem::path path = directory_ / kLockFile;
  fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd_ < 0) fail_file(path, "written", errno);
  // The directory too: the file may be removed meanwhile.
  folder_ = ::open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const auto is_taken = [](int fd) {
    return fd >= 0 && ::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  };
  if (is_taken(fd_) || is_taken(folder_)) {
    const Descriptor folder(std::exchange(folder_, -1));
    const Descriptor closed(std::exchange(fd_, -1));
    throw Error(ErrorCode::io, "'" + directory_.string() + "' is in use by " + holder(closed.get()),
                {}, "wait for it, or take another directory");
  }
  // The lock is what counts: a note that cannot be written is left out.
  const std::string note = this_process();
  [[maybe_unused]] const bool noted =
      ::ftruncate(fd_, 0) == 0 && ::pwrite(fd_, note.data(), note.size(), 0) > 0;
}

RunLock::~RunLock() {
  if (fd_ < 0) return;
  // Whoever comes next must not read who was here before.
  [[maybe_unused]] const int emptied = ::ftruncate(fd_, 0);
  ::close(fd_);
  if (folder_ >= 0) ::close(folder_);
}

}  // namespace ebb
