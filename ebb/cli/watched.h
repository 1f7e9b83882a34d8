// SPDX-License-Identifier: Apache-2.0
// An experiment while it runs: Ctrl-C stops it and a line on the terminal says what is done.
#pragma once

#include <cmath>
#include <iosfwd>
#include <string>

#include "ebb/cli/interrupt.h"
#include "ebb/cli/status_line.h"

namespace ebb {

// run(setup), with setup.stop and setup.progress set for as long as it takes.
template <class Setup, class Experiment>
auto watched(Setup& setup, std::ostream& err, Experiment run) {
  const Interrupt interrupt;
  StatusLine status(err);
  setup.stop = interrupt.token();
  if (status.is_shown()) {
    setup.progress = [&status](const std::string& what, double done) {
      status.say(std::to_string(std::lround(100 * done)) + " %  " + what);
    };
  }
  auto results = run(setup);
  setup.progress = nullptr;
  return results;
}

}  // namespace ebb
