// SPDX-License-Identifier: Apache-2.0
#include <csignal>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "ebb/cli/cli.h"

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(false);
  // A reader that has gone and a file that may not grow are errors of the write, after which training is saved.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    const std::vector<std::string> args(argv + (argc > 0 ? 1 : 0), argv + argc);
    return ebb::run_cli(args, std::cout, std::cerr);
  } catch (const std::exception& bug) {
    std::cerr << "ebb: internal error, please report it: " << bug.what() << '\n';
    return 1;
  }
}
