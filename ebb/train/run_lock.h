// SPDX-License-Identifier: Apache-2.0
// The right to write into a run's directory, which one run at a time has.
#pragma once

#include <filesystem>

namespace ebb {

class Ranks;

// Held from the constructor to the destructor or to the end of the process, however that comes, by a lock
// on the file `lock` and the directory itself; who holds it stands in that file, which stays. Two in one process
// exclude each other too. Those who only read need none.
// Where a file system has no locks, two runs in one directory are not noticed. Those of several machines
// see each other if their file system has locks for all of them (NFS has).
class RunLock {
 public:
  // For all processes that train together, each of which calls it: rank 0 takes the lock, and the others
  // go on when it has. The directory is made if it is missing; for a run that resumes it has to hold a
  // checkpoint, and nothing is made where there is none.
  // Throws Error(io): someone else has it, and the message says who; the directory cannot be written.
  RunLock(std::filesystem::path directory, bool resumes, Ranks& ranks);
  // For this process, in a directory that is there.
  explicit RunLock(std::filesystem::path directory);
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;
  ~RunLock();

  const std::filesystem::path& directory() const { return directory_; }

 private:
  void take();

  std::filesystem::path directory_;
  int fd_ = -1, folder_ = -1;  // of the file and the directory; -1: rank 0 has them
};

}  // namespace ebb
