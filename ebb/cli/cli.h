// SPDX-License-Identifier: Apache-2.0
// The program ebb as a function: words in, text and an exit code out. What each subcommand does is
// in its own file.
#pragma once

#include <iosfwd>
#include <span>
#include <string>

#include "ebb/core/error.h"

namespace ebb {

// Exit codes.
inline constexpr int kDone = 0;
inline constexpr int kBadUsage = 2;     // a mistake in the words or files given
inline constexpr int kDoesNotFit = 3;   // the message names the least budget
inline constexpr int kFailure = 4;      // a file, memory or a device failed
inline constexpr int kCancelled = 130;  // by Ctrl-C, as shells count it, or SIGTERM

// The code for an error that ends the program.
int exit_code(ErrorCode code);

// Runs `ebb args...`; `args` is without the program's name. Results go to `out`, messages to `err`.
// Returns an exit code. Lets through only exceptions that mean a bug in ebb itself.
int run_cli(std::span<const std::string> args, std::ostream& out, std::ostream& err);

}  // namespace ebb
