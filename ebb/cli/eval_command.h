// SPDX-License-Identifier: Apache-2.0
// `ebb eval`: how good a trained net is.
#pragma once

#include "ebb/cli/command.h"

namespace CLI {
class App;
}

namespace ebb {

// Declares the options of `ebb eval` on `app`; see declare_plan.
Command declare_eval(CLI::App& app);

}  // namespace ebb
