// SPDX-License-Identifier: Apache-2.0
// `ebb sample`: text that a trained net goes on with.
#pragma once

#include "ebb/cli/command.h"

namespace CLI {
class App;
}

namespace ebb {

// Declares the options of `ebb sample` on `app`; see declare_plan.
Command declare_sample(CLI::App& app);

}  // namespace ebb
