// SPDX-License-Identifier: Apache-2.0
// What holdings know of tiers that fail, and how they go on without them.
#include <algorithm>
#include <cstring>
#include <limits>
#include <string>

#include "ebb/run/holdings.h"

namespace ebb {
namespace {

constexpr std::size_t kFailuresKept = 8;
// Of each tier, from a forward to the end of its backward: one bit may flip.
constexpr std::int64_t kFailuresForgiven = 1;
constexpr std::int64_t kTold = std::numeric_limits<std::int64_t>::min() / 2;

}  // namespace

void Holdings::note_failure(const ItemMove& move, const char* what) {
  ++failed_;
  const Name& slow = move.writes ? move.destination : move.source;
  ++failed_in_[static_cast<std::size_t>(slow.place.tier())];
  if (failures_.size() >= kFailuresKept) return;
  const std::string& tier = setup_.tiers[static_cast<std::size_t>(slow.place.tier())].name;
  failures_.push_back((move.writes ? "writing " : "reading ") +
                      std::string(slow.item == Item::state ? "state " : "tape ") +
                      std::to_string(slow.step) + (move.writes ? " to " : " from ") + tier + ": " +
                      what);
}

int Holdings::take_failed_tier() {
  const auto found = std::ranges::find_if(
      failed_in_, [](std::int64_t failed) { return failed > kFailuresForgiven; });
  if (found == failed_in_.end()) return -1;
  *found = kTold;
  return static_cast<int>(found - failed_in_.begin());
}

void Holdings::reopen(const HoldingsSetup& setup) {
  std::vector<std::byte> adjoint(static_cast<std::size_t>(setup.adjoint));
  std::memcpy(adjoint.data(), this->adjoint(), adjoint.size());
  forget_items();
  earlier_ = now();
  closed_earlier_ += arena_.moved();
  for (TierTraffic& tier : traffic_) tier.written.busy_until = tier.read.busy_until = 0;
  store_.reset();
  setup_ = setup;
  if (setup.fast > memory_.size()) {
    memory_ = Buffer();
    memory_ = Buffer(setup.ledger, "run", setup.fast);
  }
  arena_ = made_arena();
  store_ = std::make_unique<Store>(setup.tiers, setup.needs, setup.host, memory_.at(0, setup.fast));
  reserve();
  need_adjoint();
  std::memcpy(this->adjoint(), adjoint.data(), adjoint.size());
}

}  // namespace ebb
