// SPDX-License-Identifier: Apache-2.0
// Random chains, platforms and budgets for property tests, small enough to be planned in a moment.
#pragma once

#include <cstdint>
#include <random>
#include <string>

#include "ebb/plan/chain.h"
#include "ebb/plan/platform.h"
#include "ebb/plan/strategies.h"

namespace ebb {

// A new seed for every run of the program, or EBB_SEED; printed once.
std::uint64_t test_seed();

struct RandomCase {
  Chain chain;
  Platform platform;
  bool sync;
  bool slots;  // the literature's accounting instead of bytes

  // One line that a person can rebuild the case from.
  std::string text() const;
};

class CaseMaker {
 public:
  explicit CaseMaker(std::uint64_t seed) : random_(seed) {}

  RandomCase next();
  // One more tier, by a name that next() does not give.
  Tier next_tier(Bytes state) { return tier(25, state); }
  std::int64_t between(std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random_);
  }
  bool one_in(int n) { return between(1, n) == 1; }

 private:
  double seconds();
  StepCost step();
  Tier tier(int index, Bytes state);

  std::mt19937_64 random_;
};

}  // namespace ebb
