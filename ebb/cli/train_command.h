// SPDX-License-Identifier: Apache-2.0
// ebb train: a recurrent net, a task and a budget.
#pragma once

#include "ebb/cli/command.h"

namespace CLI {
class App;
}

namespace ebb {

// Declares the options; the command runs them.
Command declare_train(CLI::App& app);

}  // namespace ebb
