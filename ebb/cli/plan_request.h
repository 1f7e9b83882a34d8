// SPDX-License-Identifier: Apache-2.0
// What the words of `ebb plan` ask for. Planning and printing are left to others.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ebb/plan/words.h"

namespace ebb {

// The words as typed.
struct PlanWords {
  ChainWords step;
  OptionWords options;
  std::optional<std::string> chain, platform, format, view;
  std::vector<std::string> tiers;
  bool sync = false;
  bool json = false;
  bool actions = false;
  bool sweep = false;
  bool largest = false;
  bool strategies = false;
};

struct PlanRequest {
  Chain chain;  // with --largest of no steps or any number of them: only its step counts
  Platform platform;
  PlanOptions options;
};

// Checks the words one by one and against each other and reads the files they name. Throws
// Error(invalid_argument) that names the option, the value and what is allowed; Error(io) for a
// file that cannot be read.
PlanRequest read_request(const PlanWords& words);

}  // namespace ebb
