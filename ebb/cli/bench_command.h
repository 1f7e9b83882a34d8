// SPDX-License-Identifier: Apache-2.0
// `ebb bench`: the papers' experiments on this machine.
#pragma once

#include "ebb/cli/command.h"

namespace CLI {
class App;
}

namespace ebb {

// Declares the experiments of `ebb bench` on `app`, each a subcommand; see declare_plan.
Command declare_bench(CLI::App& app);

}  // namespace ebb
