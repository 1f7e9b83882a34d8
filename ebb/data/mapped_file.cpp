// SPDX-License-Identifier: Apache-2.0
#include "ebb/data/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

#include "ebb/core/error.h"
#include "ebb/data/whole_file.h"

namespace ebb {

MappedFile::MappedFile(const std::filesystem::path& path, std::string_view origin) {
  check_is_file(path, origin);
  const std::string name = path.string();
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail(ErrorCode::io, name, ": it cannot be opened: ", std::strerror(errno));
  struct stat found{};
  void* start = nullptr;
  int failed = ::fstat(fd, &found) == 0 ? 0 : errno;
  const auto size = static_cast<std::size_t>(found.st_size);
  if (failed == 0 && size > 0) {  // there are no mappings of nothing
    start = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
    if (start == MAP_FAILED) failed = errno;
  }
  ::close(fd);
  if (failed != 0) fail(ErrorCode::io, name, ": it cannot be mapped: ", std::strerror(failed));
  bytes_ = {static_cast<const std::byte*>(start), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void forget(std::span<const std::byte> mapped) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t before = reinterpret_cast<std::uintptr_t>(mapped.data()) % page;
  // Without it all is as before, but for the memory.
  [[maybe_unused]] const int told = ::madvise(const_cast<std::byte*>(mapped.data()) - before,
                                              mapped.size() + before, MADV_DONTNEED);
}

}  // namespace ebb
