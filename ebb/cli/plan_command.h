// SPDX-License-Identifier: Apache-2.0
// `ebb plan`: does it fit, how slow is it, which actions.
#pragma once

#include "ebb/cli/command.h"

namespace CLI {
class App;
}

namespace ebb {

// Declares the options of `ebb plan` on `app`. The command returned holds the words that parsing
// `app` leaves there.
Command declare_plan(CLI::App& app);

}  // namespace ebb
