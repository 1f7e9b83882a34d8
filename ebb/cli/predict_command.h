// SPDX-License-Identifier: Apache-2.0
// `ebb predict`: what a trained net makes of a file of sequences.
#pragma once

#include "ebb/cli/command.h"

namespace CLI {
class App;
}

namespace ebb {

// Declares the options of `ebb predict` on `app`; see declare_plan.
Command declare_predict(CLI::App& app);

}  // namespace ebb
