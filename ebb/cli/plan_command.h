// SPDX-License-Identifier: Apache-2.0
// `ebb plan`: does it fit, how slow is it, which actions.
#pragma once

#include <functional>
#include <iosfwd>

namespace CLI {
class App;
}

namespace ebb {

// What a subcommand does once its words are parsed. Throws Error.
using Command = std::function<void(std::ostream& out)>;

// Declares the options of `ebb plan` on `app`. The command returned holds the words that parsing
// `app` leaves there.
Command declare_plan(CLI::App& app);

}  // namespace ebb
