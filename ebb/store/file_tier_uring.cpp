// SPDX-License-Identifier: Apache-2.0
// Many direct transfers in flight from one thread. Each thread that moves bytes takes a ring of its
// own; rings are kept for the next.
#include <liburing.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <functional>
#include <mutex>
#include <vector>

#include "ebb/core/error.h"
#include "ebb/store/file.h"

namespace ebb {
namespace {

constexpr unsigned kRingEntries = 16;
constexpr std::size_t kChunk = 256 << 10;
// The most bytes of one registered buffer.
constexpr std::size_t kRegistered = std::size_t{1} << 30;

struct Ring {
  io_uring ring{};
  bool open = false;
  bool fixed = false;  // has the expected memory registered

  Ring() = default;
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;
  ~Ring() {
    if (open) io_uring_queue_exit(&ring);
  }
};

std::unique_ptr<Ring> open_ring() {
  auto ring = std::make_unique<Ring>();
  ring->open = io_uring_queue_init(kRingEntries, &ring->ring, 0) == 0;
  return ring->open ? std::move(ring) : nullptr;
}

// The first kernels with rings cannot read and write by them without vectors.
bool can_move(Ring& ring) {
  io_uring_probe* const probe = io_uring_get_probe_ring(&ring.ring);
  if (probe == nullptr) return false;
  const bool can = io_uring_opcode_supported(probe, IORING_OP_READ) != 0 &&
                   io_uring_opcode_supported(probe, IORING_OP_WRITE) != 0;
  io_uring_free_probe(probe);
  return can;
}

struct Chunk {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  Bytes offset = 0;
};

// One range of bytes on its way through a ring.
class RingMove {
 public:
  RingMove(Ring& ring, const UnnamedFile& file, std::span<std::byte> memory, bool writes)
      : ring_(ring), file_(file), memory_(memory), writes_(writes) {
    for (std::size_t slot = 0; slot < kRingEntries; ++slot) free_[slot] = slot;
  }

  // Returns when nothing is under way any more. False: the ring is of no further use.
  bool run(Chunk all) {
    while (under_way() > 0 || (all.bytes > 0 && error_ == 0)) {
      while (free_count_ > 0 && all.bytes > 0 && error_ == 0) {
        const std::size_t slot = free_[--free_count_];
        chunks_[slot] = {all.data, prepare(slot, all), all.offset};
        all = rest(all, chunks_[slot].bytes);
      }
      const int submitted = io_uring_submit_and_wait(&ring_.ring, 1);
      if (submitted < 0 && submitted != -EINTR && submitted != -EAGAIN) {
        note(-submitted, all.offset);
        wait_for_submitted();
        return false;
      }
      collect();
    }
    return true;
  }

  int error() const { return error_; }
  Bytes error_at() const { return error_at_; }

 private:
  std::size_t under_way() const { return kRingEntries - free_count_; }

  static Chunk rest(const Chunk& chunk, std::size_t done) {
    return {chunk.data + done, chunk.bytes - done, chunk.offset + static_cast<Bytes>(done)};
  }

  void note(int error, Bytes at) {
    if (error_ != 0) return;
    error_ = error;
    error_at_ = at;
  }

  // The registered buffer that holds all of it, or -1.
  int buffer_of(const std::byte* data, std::size_t bytes) const {
    if (!ring_.fixed || std::less<>()(data, memory_.data())) return -1;
    const auto at = static_cast<std::size_t>(data - memory_.data());
    if (at + bytes > memory_.size()) return -1;
    const std::size_t first = at / kRegistered;
    return first == (at + bytes - 1) / kRegistered ? static_cast<int>(first) : -1;
  }

  // Returns how many bytes of the chunk it takes along. There is an entry for every slot.
  std::size_t prepare(std::size_t slot, const Chunk& chunk) {
    const auto [fd, part] = file_.call(chunk.offset, chunk.data, std::min(kChunk, chunk.bytes));
    io_uring_sqe* const entry = io_uring_get_sqe(&ring_.ring);
    const auto bytes = static_cast<unsigned>(part);
    const auto offset = static_cast<std::uint64_t>(chunk.offset);
    const int buffer = buffer_of(chunk.data, part);
    if (buffer >= 0 && writes_) {
      io_uring_prep_write_fixed(entry, fd, chunk.data, bytes, offset, buffer);
    } else if (buffer >= 0) {
      io_uring_prep_read_fixed(entry, fd, chunk.data, bytes, offset, buffer);
    } else if (writes_) {
      io_uring_prep_write(entry, fd, chunk.data, bytes, offset);
    } else {
      io_uring_prep_read(entry, fd, chunk.data, bytes, offset);
    }
    entry->user_data = slot;
    return part;
  }

  void collect() {
    io_uring_cqe* entry = nullptr;
    while (io_uring_peek_cqe(&ring_.ring, &entry) == 0) {
      const auto slot = static_cast<std::size_t>(entry->user_data);
      const int result = file_calls().completion(entry->res);
      io_uring_cqe_seen(&ring_.ring, entry);
      Chunk& chunk = chunks_[slot];
      const bool again = result == -EINTR || result == -EAGAIN;
      if (!again && result <= 0) note(result < 0 ? -result : EIO, chunk.offset);
      chunk = rest(chunk, result > 0 ? static_cast<std::size_t>(result) : 0);
      if (error_ == 0 && chunk.bytes > 0) {
        prepare(slot, chunk);
      } else {
        free_[free_count_++] = slot;
      }
    }
  }

  // The ring refuses what is new; what it has taken still reads and writes the caller's memory.
  void wait_for_submitted() {
    const std::size_t refused = io_uring_sq_ready(&ring_.ring);
    for (std::size_t left = under_way() - refused; left > 0;) {
      io_uring_cqe* entry = nullptr;
      const int waited = io_uring_wait_cqe(&ring_.ring, &entry);
      if (waited == -EINTR || waited == -EAGAIN) continue;
      if (waited < 0) return;
      io_uring_cqe_seen(&ring_.ring, entry);
      --left;
    }
  }

  Ring& ring_;
  const UnnamedFile& file_;
  std::span<std::byte> memory_;
  bool writes_;
  std::array<Chunk, kRingEntries> chunks_;
  std::array<std::size_t, kRingEntries> free_;
  std::size_t free_count_ = kRingEntries;
  int error_ = 0;
  Bytes error_at_ = 0;
};

class UringMover : public FileMover {
 public:
  UringMover(std::unique_ptr<Ring> first, int threads) {
    rings_.push_back(std::move(first));
    for (int i = 1; i < threads; ++i) {
      auto ring = open_ring();
      if (ring == nullptr) break;
      rings_.push_back(std::move(ring));
    }
  }

  void expect(std::span<std::byte> memory) override {
    memory_ = memory;
    for (const auto& ring : rings_) register_memory(*ring);
  }
  void write(const UnnamedFile& file, Bytes offset, std::span<const std::byte> bytes) override {
    move(file, {const_cast<std::byte*>(bytes.data()), bytes.size(), offset}, true);
  }
  void read(const UnnamedFile& file, Bytes offset, std::span<std::byte> bytes) override {
    move(file, {bytes.data(), bytes.size(), offset}, false);
  }

 private:
  // Locked pages may be scarce; transfers work without registration too, a little slower.
  void register_memory(Ring& ring) const {
    if (memory_.empty()) return;
    std::vector<iovec> parts;
    for (std::size_t at = 0; at < memory_.size(); at += kRegistered) {
      parts.push_back({memory_.data() + at, std::min(kRegistered, memory_.size() - at)});
    }
    const int done =
        io_uring_register_buffers(&ring.ring, parts.data(), static_cast<unsigned>(parts.size()));
    ring.fixed = done == 0;
  }

  std::unique_ptr<Ring> take_ring() {
    {
      const std::scoped_lock lock(mutex_);
      if (!rings_.empty()) {
        auto ring = std::move(rings_.back());
        rings_.pop_back();
        return ring;
      }
    }
    auto ring = open_ring();
    if (ring == nullptr) fail(ErrorCode::io, "file tier: no further io_uring could be opened");
    register_memory(*ring);
    return ring;
  }

  void move(const UnnamedFile& file, const Chunk& all, bool writes) {
    std::unique_ptr<Ring> ring = take_ring();
    RingMove move(*ring, file, memory_, writes);
    if (move.run(all)) {
      const std::scoped_lock lock(mutex_);
      rings_.push_back(std::move(ring));
    }
    if (move.error() != 0) fail_io(file, writes ? "write" : "read", move.error_at(), move.error());
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<Ring>> rings_;
  std::span<std::byte> memory_;
};

}  // namespace

std::unique_ptr<FileMover> uring_mover(int threads) {
  auto ring = open_ring();
  if (ring == nullptr || !can_move(*ring)) return nullptr;
  return std::make_unique<UringMover>(std::move(ring), threads);
}

}  // namespace ebb
