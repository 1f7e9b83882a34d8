// SPDX-License-Identifier: Apache-2.0
// What a network on a CUDA device is made of, from its options alone: its layers, and a plan for a chunk that is given or chosen. No
// device is needed.
#pragma once

#include <memory>
#include <vector>

#include "ebb/cell/device_stack.h"
#include "ebb/plan/chain.h"
#include "ebb/plan/plan.h"
#include "ebb/run/device_network.h"

namespace ebb {

struct PlannedStack {
  std::unique_ptr<const DeviceStack> stack;
  Chain chain;
  std::shared_ptr<const Plan> plan;
};

// `same` is the net of these options on the CPU: which weights there are is drawn there. Throws as device_plan does.
PlannedStack plan_stack(const DeviceNetworkOptions& options, const Network<float>& same);

}  // namespace ebb
