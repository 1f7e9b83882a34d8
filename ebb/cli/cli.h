// SPDX-License-Identifier: Apache-2.0
// The program ebb as a function: words in, text and an exit code out. What each subcommand does is in its own file.
#pragma once

#include <iosfwd>
#include <span>
#include <string>

namespace ebb {

enum ExitCode : int {
  kDone = 0,
  kBadUsage = 2,    // a mistake in the words or files given
  kDoesNotFit = 3,  // the message names the least budget
  kFailure = 4,     // a file, memory or a device failed
};

// Runs `ebb args...`; `args` is without the program's name. Results go to `out`, messages to `err`. Returns an ExitCode.
// Lets through only exceptions that mean a bug in ebb itself.
int run_cli(std::span<const std::string> args, std::ostream& out, std::ostream& err);

}  // namespace ebb
