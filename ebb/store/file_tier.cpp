// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <utility>

#include "ebb/core/error.h"
#include "ebb/store/file.h"
#include "ebb/store/slow_tier.h"

namespace ebb {
namespace {

// Enough to keep a disk busy while others of them compute checksums.
constexpr int kWorkers = 4;

// Until nothing is left: the system may do with less than it was asked for.
template <class Byte, class Call>
void move_all(const UnnamedFile& file, Bytes offset, std::span<Byte> bytes, const char* name,
              Call call) {
  while (!bytes.empty()) {
    const auto [fd, part] = file.call(offset, bytes.data(), bytes.size());
    const ssize_t done = call(fd, bytes.data(), part, offset);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) fail_io(file, name, offset, done < 0 ? errno : EIO);
    offset += done;
    bytes = bytes.subspan(static_cast<std::size_t>(done));
  }
}

class ThreadMover : public FileMover {
 public:
  void write(const UnnamedFile& file, Bytes offset, std::span<const std::byte> bytes) override {
    move_all(file, offset, bytes, "pwrite", file_calls().pwrite);
  }
  void read(const UnnamedFile& file, Bytes offset, std::span<std::byte> bytes) override {
    move_all(file, offset, bytes, "pread", file_calls().pread);
  }
};

class File : public Medium {
 public:
  File(const std::string& directory, const FileOptions& options)
      : file_(directory, options.direct) {
    if (options.engine != FileEngine::threads) mover_ = uring_mover(2 * kWorkers);
    if (mover_ == nullptr && options.engine == FileEngine::uring) {
      fail(ErrorCode::unavailable,
           "file tier: io_uring is not in this build or not allowed on this machine; take the "
           "engine 'threads'");
    }
    if (mover_ == nullptr) mover_ = thread_mover();
  }

  void reserve(Bytes bytes) override { file_.reserve(bytes); }
  void expect(std::span<std::byte> memory) override { mover_->expect(memory); }
  void write(Bytes offset, std::span<const std::byte> bytes) override {
    mover_->write(file_, offset, bytes);
  }
  void read(Bytes offset, std::span<std::byte> bytes) override {
    mover_->read(file_, offset, bytes);
  }

 private:
  UnnamedFile file_;
  std::unique_ptr<FileMover> mover_;
};

}  // namespace

std::unique_ptr<FileMover> thread_mover() { return std::make_unique<ThreadMover>(); }

SlowTier file_tier(std::string directory, Bytes capacity, std::string name,
                   const FileOptions& options) {
  if (directory.empty()) {
    fail(ErrorCode::invalid_argument, "file_tier: the directory is empty; name one that exists");
  }
  return {.name = std::move(name),
          .capacity = capacity,
          .open = [directory = std::move(directory),
                   options](const Ledger&) { return std::make_unique<File>(directory, options); },
          .workers = kWorkers};
}

bool has_uring() { return uring_mover(1) != nullptr; }

}  // namespace ebb
