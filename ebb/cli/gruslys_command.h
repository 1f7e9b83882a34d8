// SPDX-License-Identifier: Apache-2.0
// `ebb bench gruslys`.
#pragma once

#include "ebb/cli/command.h"

namespace CLI {
class App;
}

namespace ebb {

// Declares the options on `app`; see declare_plan.
Command declare_gruslys(CLI::App& app);

}  // namespace ebb
