// SPDX-License-Identifier: Apache-2.0
#include <csignal>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "ebb/cli/cli.h"

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(false);
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error of the write
  try {
    const std::vector<std::string> args(argv + (argc > 0 ? 1 : 0), argv + argc);
    return ebb::run_cli(args, std::cout, std::cerr);
  } catch (const std::exception& bug) {
    std::cerr << "ebb: internal error, please report it: " << bug.what() << '\n';
    return 1;
  }
}
