// SPDX-License-Identifier: Apache-2.0
// What Ranks needs from MPI. Private.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

namespace ebb {

class RankLink {
 public:
  RankLink() = default;
  RankLink(const RankLink&) = delete;
  RankLink& operator=(const RankLink&) = delete;
  virtual ~RankLink() = default;  // leaves MPI as it is

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int local_rank() const = 0;  // among the processes of this machine
  // Of each rank's `mine`, the part for rank r goes to r: it holds parts of `part` bytes, one for each
  // rank, and so does `from_all`, in the order of ranks.
  virtual void exchange(std::span<const std::byte> mine, std::span<std::byte> from_all,
                        std::size_t part) = 0;
  // Puts each rank's `mine` into `of_all`, in the order of ranks.
  virtual void gather(std::span<const std::byte> mine, std::span<std::byte> of_all) = 0;
  virtual bool any(bool here) = 0;
  virtual void set_waiting(std::function<void()> waiting) = 0;
  virtual void end_all(int code) = 0;
  // The proper end, which waits for all ranks.
  virtual void finish() noexcept = 0;
};

// `started`: how many processes the launcher says there are. `patience`: see RankOptions.
std::unique_ptr<RankLink> join_ranks(int started, double patience);

}  // namespace ebb
