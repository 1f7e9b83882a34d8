// SPDX-License-Identifier: Apache-2.0
// `ebb bench double`.
#pragma once

#include "ebb/cli/command.h"

namespace CLI {
class App;
}

namespace ebb {

// Declares the options on `app`; see declare_plan.
Command declare_double(CLI::App& app);

}  // namespace ebb
