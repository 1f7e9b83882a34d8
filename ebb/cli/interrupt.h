// SPDX-License-Identifier: Apache-2.0
// Ctrl-C, or another program's request to end, turned into a stop token. A signal handler may not
// request a stop itself; it wakes a thread that does.
#pragma once

#include <csignal>
#include <iterator>
#include <stop_token>
#include <thread>

namespace ebb {

// While it lives, the first SIGINT or SIGTERM requests a stop and the second one of a kind ends the
// program as if unwatched. Where one is ignored it stays so. One at a time. Throws
// Error(device) when the system gives no pipe or thread.
class Interrupt {
 public:
  Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;
  ~Interrupt();

  std::stop_token token() const { return source_.get_token(); }
  // As a signal does.
  void stop() { source_.request_stop(); }

 private:
  std::stop_source source_;
  static constexpr int kSignals[] = {SIGINT, SIGTERM};
  struct sigaction before_[std::size(kSignals)] = {};
  int pipe_[2] = {-1, -1};
  std::thread watcher_;
};

}  // namespace ebb
