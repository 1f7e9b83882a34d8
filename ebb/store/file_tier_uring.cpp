// SPDX-License-Identifier: Apache-2.0
// Many direct transfers in flight from one thread. Each thread that moves bytes takes a ring of its
// own; rings are kept for the next.
#include <liburing.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <mutex>
#include <vector>

#include "ebb/core/error.h"
#include "ebb/store/file.h"

namespace ebb {
namespace {

constexpr unsigned kInFlight = 16;
constexpr std::size_t kChunk = 256 << 10;
// The most bytes of one registered buffer.
constexpr std::size_t kRegistered = std::size_t{1} << 30;

struct Ring {
  io_uring ring{};
  bool open = false;
  bool asked = false;  // for registered buffers
  bool fixed = false;  // and has them

  Ring() = default;
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;
  ~Ring() {
    if (open) io_uring_queue_exit(&ring);
  }
};

std::unique_ptr<Ring> open_ring() {
  auto ring = std::make_unique<Ring>();
  ring->open = io_uring_queue_init(kInFlight, &ring->ring, 0) == 0;
  return ring->open ? std::move(ring) : nullptr;
}

class UringMover : public FileMover {
 public:
  explicit UringMover(std::unique_ptr<Ring> first) { rings_.push_back(std::move(first)); }

  void expect(std::span<std::byte> memory) override { memory_ = memory; }

  void write(const UnnamedFile& file, Bytes offset, std::span<const std::byte> bytes) override {
    move(file, offset, const_cast<std::byte*>(bytes.data()), bytes.size(), true);
  }
  void read(const UnnamedFile& file, Bytes offset, std::span<std::byte> bytes) override {
    move(file, offset, bytes.data(), bytes.size(), false);
  }

 private:
  struct Chunk {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    Bytes offset = 0;
  };

  std::unique_ptr<Ring> take_ring() {
    const std::scoped_lock lock(mutex_);
    if (rings_.empty()) {
      auto ring = open_ring();
      if (ring == nullptr) fail(ErrorCode::io, "file tier: no further io_uring could be opened");
      rings_.push_back(std::move(ring));
    }
    auto ring = std::move(rings_.back());
    rings_.pop_back();
    if (!ring->asked && !memory_.empty()) {
      ring->asked = true;
      register_memory(*ring);
    }
    return ring;
  }

  // Locked pages may be scarce; transfers work without registration too, a little slower.
  void register_memory(Ring& ring) {
    std::vector<iovec> parts;
    for (std::size_t at = 0; at < memory_.size(); at += kRegistered) {
      parts.push_back({memory_.data() + at, std::min(kRegistered, memory_.size() - at)});
    }
    const int done =
        io_uring_register_buffers(&ring.ring, parts.data(), static_cast<unsigned>(parts.size()));
    ring.fixed = done == 0;
  }

  // The registered buffer that holds the whole chunk, or -1.
  int buffer_of(const Ring& ring, const Chunk& chunk) const {
    if (!ring.fixed || chunk.data < memory_.data()) return -1;
    const auto at = static_cast<std::size_t>(chunk.data - memory_.data());
    if (at + chunk.bytes > memory_.size()) return -1;
    return at / kRegistered == (at + chunk.bytes - 1) / kRegistered
               ? static_cast<int>(at / kRegistered)
               : -1;
  }

  void prepare(Ring& ring, const UnnamedFile& file, const Chunk& chunk, std::size_t slot,
               bool writes) const {
    io_uring_sqe* const sqe = io_uring_get_sqe(&ring.ring);
    const int fd = file.descriptor(chunk.offset, chunk.data, chunk.bytes);
    const auto bytes = static_cast<unsigned>(chunk.bytes);
    const auto offset = static_cast<std::uint64_t>(chunk.offset);
    const int buffer = buffer_of(ring, chunk);
    if (buffer >= 0 && writes) {
      io_uring_prep_write_fixed(sqe, fd, chunk.data, bytes, offset, buffer);
    } else if (buffer >= 0) {
      io_uring_prep_read_fixed(sqe, fd, chunk.data, bytes, offset, buffer);
    } else if (writes) {
      io_uring_prep_write(sqe, fd, chunk.data, bytes, offset);
    } else {
      io_uring_prep_read(sqe, fd, chunk.data, bytes, offset);
    }
    sqe->user_data = slot;
  }

  void move(const UnnamedFile& file, Bytes offset, std::byte* data, std::size_t bytes,
            bool writes) {
    std::unique_ptr<Ring> ring = take_ring();
    std::array<Chunk, kInFlight> chunks;
    std::array<bool, kInFlight> busy{};
    std::size_t under_way = 0;
    std::size_t next = 0;
    int error = 0;
    Bytes error_at = 0;
    while (under_way > 0 || (next < bytes && error == 0)) {
      for (std::size_t slot = 0; slot < kInFlight && next < bytes && error == 0; ++slot) {
        if (busy[slot]) continue;
        const std::size_t part = std::min(kChunk, bytes - next);
        chunks[slot] = {data + next, part, offset + static_cast<Bytes>(next)};
        prepare(*ring, file, chunks[slot], slot, writes);
        busy[slot] = true;
        next += part;
        ++under_way;
      }
      const int submitted = io_uring_submit_and_wait(&ring->ring, 1);
      if (submitted < 0 && submitted != -EINTR && submitted != -EAGAIN) {
        // The ring is of no use any more, and what it was given may still be under way: it is
        // closed, which waits.
        ring.reset();
        fail_io(file, "io_uring_submit", offset, -submitted);
      }
      io_uring_cqe* cqe = nullptr;
      while (io_uring_peek_cqe(&ring->ring, &cqe) == 0) {
        const auto slot = static_cast<std::size_t>(cqe->user_data);
        const int result = file_calls().completion(cqe->res);
        io_uring_cqe_seen(&ring->ring, cqe);
        Chunk& chunk = chunks[slot];
        const bool again = result == -EINTR || result == -EAGAIN;
        if (!again && result <= 0) {
          if (error == 0) error_at = chunk.offset;
          error = result < 0 ? -result : EIO;
        }
        const std::size_t done = result > 0 ? static_cast<std::size_t>(result) : 0;
        if (error == 0 && (again || done < chunk.bytes)) {
          chunk = {chunk.data + done, chunk.bytes - done, chunk.offset + static_cast<Bytes>(done)};
          prepare(*ring, file, chunk, slot, writes);
          continue;
        }
        busy[slot] = false;
        --under_way;
      }
    }
    {
      const std::scoped_lock lock(mutex_);
      rings_.push_back(std::move(ring));
    }
    if (error != 0) fail_io(file, writes ? "write" : "read", error_at, error);
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<Ring>> rings_;
  std::span<std::byte> memory_;
};

}  // namespace

std::unique_ptr<FileMover> uring_mover() {
  auto ring = open_ring();
  return ring == nullptr ? nullptr : std::make_unique<UringMover>(std::move(ring));
}

}  // namespace ebb
