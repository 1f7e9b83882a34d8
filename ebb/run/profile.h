// SPDX-License-Identifier: Apache-2.0
// Measures what a plan needs to know: how long a Step's calls take, how large its items are, how fast
// states are copied within fast memory and how fast the slow tiers really are. What is measured goes
// into a Chain and a Platform, which plans are made from and which have a text form (plan/text.h).
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "ebb/device/ledger.h"
#include "ebb/plan/chain.h"
#include "ebb/plan/platform.h"
#include "ebb/run/step.h"
#include "ebb/store/slow_tier.h"

namespace ebb {

struct ProfileOptions {
  // The state to measure from; without one all zeros.
  std::span<const std::byte> initial = {};
  double step_seconds = 0.3;  // about, for the step
  double tier_seconds = 0.3;  // about, for each tier
  // Memory that is held while measuring is charged to these, where they are given: that of the step
  // and of items under way, and that of slow tiers.
  std::optional<Ledger> ledger = {};
  std::optional<Ledger> host_ledger = {};
  // And no more than this of the first is taken.
  Bytes room = kUnlimited;
  // What the chain of a Step of unknown length says.
  std::int64_t expected_steps = 1000;
};

// Measured costs of a Step, and measured speeds of copies and tiers: what plans are made from.
struct Profile {
  Chain chain;
  Platform platform;
};

// The bytes are those that a run with these tiers books: the Step's own, rounded up so that every
// item is aligned. `budget` becomes platform.fast. The Step's begin is called before and after.
// Throws Error(invalid_argument) for sizes and seconds that cannot be and for an initial state of another size,
// Error(io) for a tier that does not work, Error(out_of_budget), and whatever the Step throws.
Profile profile(Step& step, Bytes budget, const std::vector<SlowTier>& tiers,
                const ProfileOptions& options = {});

// The Step alone, as a run with tiers or without books it.
Chain profile_step(Step& step, bool has_tiers, const ProfileOptions& options = {});

// How fast states of that size are copied within fast memory, bytes a second: a few milliseconds,
// more for large states. Infinity where there is no room for two.
double profile_copies(Bytes state, const ProfileOptions& options = {});

// One tier, with items of that size.
Tier profile_tier(const SlowTier& tier, Bytes item, const ProfileOptions& options = {});

}  // namespace ebb
