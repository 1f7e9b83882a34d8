// SPDX-License-Identifier: Apache-2.0
#include "ebb/train/ranks.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string_view>
#include <utility>
#include <vector>

#include "ebb/core/error.h"
#include "ebb/train/rank_link.h"

namespace ebb {
namespace {

// What launchers tell the processes they start. Slurm's SLURM_NTASKS is no such sign: a batch script
// that srun did not start has it too.
int started_processes() {
  for (const char* name :
       {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    const char* const value = std::getenv(name);
    if (value == nullptr) continue;
    const std::string_view text(value);
    int count = 0;
    std::from_chars(text.data(), text.data() + text.size(), count);
    if (count > 1) return count;
  }
  return 1;
}

// MPI leaves the order of its own sums open, so they are made here: each rank adds up one part of the
// numbers in the order of ranks, and all get all parts.
template <class Number>
void sum_in_order(RankLink& link, std::span<Number> numbers) {
  constexpr std::size_t most = std::size_t{1} << 20;  // numbers at a time
  const auto ranks = static_cast<std::size_t>(link.size());
  const std::size_t round = std::min(numbers.size(), most);
  const std::size_t part = (round + ranks - 1) / ranks;
  std::vector<Number> mine(part * ranks), from_all(part * ranks), total(part);
  while (!numbers.empty()) {
    const std::size_t now = std::min(numbers.size(), round);
    std::memcpy(mine.data(), numbers.data(), now * sizeof(Number));
    link.exchange(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(from_all)),
                  part * sizeof(Number));
    for (std::size_t i = 0; i < part; ++i) {
      double sum = 0;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        sum += static_cast<double>(from_all[rank * part + i]);
      }
      total[i] = static_cast<Number>(sum);
    }
    link.gather(std::as_bytes(std::span(total)), std::as_writable_bytes(std::span(mine)));
    std::memcpy(numbers.data(), mine.data(), now * sizeof(Number));
    numbers = numbers.subspan(now);
  }
}

}  // namespace

Ranks::Ranks(const RankOptions& options) : exceptions_(std::uncaught_exceptions()) {
  if (!(options.patience >= 0)) {
    fail(ErrorCode::invalid_argument, "patience is ", options.patience,
         " seconds; it must be 0, for no limit, or more");
  }
  const int started = started_processes();
  if (started > 1) link_ = join_ranks(started, options.patience);
}

Ranks::~Ranks() {
  // The others may be waiting for this one in another place: the proper end would wait forever.
  if (link_ && std::uncaught_exceptions() <= exceptions_) link_->finish();
}

int Ranks::rank() const { return link_ ? link_->rank() : 0; }
int Ranks::size() const { return link_ ? link_->size() : 1; }
int Ranks::local_rank() const { return link_ ? link_->local_rank() : 0; }

void Ranks::sum(std::span<float> numbers) {
  if (link_) sum_in_order(*link_, numbers);
}
void Ranks::sum(std::span<double> numbers) {
  if (link_) sum_in_order(*link_, numbers);
}
bool Ranks::any(bool here) { return link_ ? link_->any(here) : here; }

void Ranks::set_waiting(std::function<void()> waiting) {
  if (link_) link_->set_waiting(std::move(waiting));
}

void Ranks::end_all(int code) {
  if (link_) link_->end_all(code);
}

}  // namespace ebb
