// SPDX-License-Identifier: Apache-2.0
// What was measured in the words of what was predicted, so that tables and JSON treat both alike.
#pragma once

#include "ebb/plan/plan.h"
#include "ebb/run/measured.h"

namespace ebb {

inline Prediction as_prediction(const Measured& measured) {
  Prediction found;
  found.forwards = measured.forwards();
  found.advances = measured.advances;
  found.records = measured.records;
  found.actions = measured.actions;
  found.seconds = measured.seconds;
  found.stall_seconds = measured.stall_seconds;
  found.peak = measured.peak;
  for (const TierTraffic& tier : measured.tiers) {
    found.moved.push_back({tier.written.bytes, tier.read.bytes});
  }
  return found;
}

}  // namespace ebb
