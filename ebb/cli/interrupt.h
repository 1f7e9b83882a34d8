// SPDX-License-Identifier: Apache-2.0
// Ctrl-C turned into a stop token. A signal handler may not request a stop itself; it wakes a thread
// that does.
#pragma once

#include <csignal>
#include <stop_token>
#include <thread>

namespace ebb {

// While it lives, the first SIGINT requests a stop and the second one ends the program as if nobody
// watched. Where SIGINT is ignored it stays so. One at a time. Throws Error(device) when the system
// gives no pipe or thread.
class Interrupt {
 public:
  Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;
  ~Interrupt();

  std::stop_token token() const { return source_.get_token(); }

 private:
  std::stop_source source_;
  struct sigaction before_{};
  int pipe_[2] = {-1, -1};
  std::thread watcher_;
};

}  // namespace ebb
