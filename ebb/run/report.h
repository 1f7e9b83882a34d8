// SPDX-License-Identifier: Apache-2.0
// What was predicted and what really happened, as numbers, text and JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ebb/plan/plan.h"
#include "ebb/run/measured.h"
#include "ebb/run/verify.h"

namespace ebb {

// What a run predicted and what it measured, as numbers, text or JSON.
struct Report {
  std::string strategy;
  Prediction predicted;
  Measured measured;
  Bytes budget = 0;   // of fast memory
  Bytes booked = 0;   // in the ledger for it
  Bytes callers = 0;  // beside that: what the caller holds for the steps, never charged
  std::vector<std::string> tiers;
  // false: gradients are not those of the Step, by a lossy codec or a tier that keeps nothing. A HandleRun
  // cannot know what its Step does with its objects, and says true.
  bool exact = true;
  // With a lossy codec: its gradients against exact ones, over the first steps.
  std::optional<Verification> codec_error;
  // What differs from the plan and deserves a word: failed transfers, speeds far from the profile.
  std::vector<std::string> remarks;

  // One line; a table; one JSON object.
  std::string brief() const;
  std::string full() const;
  std::string json() const;
};

}  // namespace ebb
