// SPDX-License-Identifier: Apache-2.0
// `ebb probe`: how fast a step and the tiers of this machine really are.
#pragma once

#include "ebb/cli/command.h"

namespace CLI {
class App;
}

namespace ebb {

// Declares the options of `ebb probe` on `app`; see declare_plan.
Command declare_probe(CLI::App& app);

}  // namespace ebb
