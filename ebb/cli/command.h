// SPDX-License-Identifier: Apache-2.0
// What a subcommand is once its words are parsed.
#pragma once

#include <functional>
#include <iosfwd>

namespace ebb {

// Results go to `out`; `err` is for progress only. Throws Error.
using Command = std::function<void(std::ostream& out, std::ostream& err)>;

}  // namespace ebb
