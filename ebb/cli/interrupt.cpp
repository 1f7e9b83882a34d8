// SPDX-License-Identifier: Apache-2.0
#include "ebb/cli/interrupt.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <system_error>

#include "ebb/core/error.h"

namespace ebb {
namespace {

constexpr char kStop = 's', kEnd = 'e';

// Where the handler writes.
std::atomic<int> woken{-1};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may use it");

void say(int descriptor, char word) {
  while (::write(descriptor, &word, 1) < 0 && errno == EINTR) {
  }
}

}  // namespace

extern "C" {
static void ebb_on_interrupt(int) {
  const int error = errno;
  say(woken.load(), kStop);
  errno = error;
}
}

Interrupt::Interrupt() {
  if (::pipe2(pipe_, O_CLOEXEC) != 0) {
    fail(ErrorCode::device, "pipe2: ", std::generic_category().message(errno));
  }
  woken = pipe_[1];
  try {
    watcher_ = std::thread([this] {
      for (char word = 0; word != kEnd;) {
        if (::read(pipe_[0], &word, 1) < 0 && errno != EINTR) return;
        if (word == kStop) source_.request_stop();
      }
    });
  } catch (const std::system_error& error) {
    ::close(pipe_[0]);
    ::close(pipe_[1]);
    fail(ErrorCode::device, "no thread can be started: ", error.what());
  }
  struct sigaction ours{};
  ours.sa_handler = ebb_on_interrupt;
  ours.sa_flags = static_cast<int>(SA_RESTART | SA_RESETHAND);
  sigemptyset(&ours.sa_mask);
  for (std::size_t i = 0; i < std::size(kSignals); ++i) {
    ::sigaction(kSignals[i], nullptr, &before_[i]);
    if (before_[i].sa_handler != SIG_IGN) ::sigaction(kSignals[i], &ours, nullptr);
  }
}

Interrupt::~Interrupt() {
  for (std::size_t i = 0; i < std::size(kSignals); ++i) {
    ::sigaction(kSignals[i], &before_[i], nullptr);
  }
  say(pipe_[1], kEnd);
  watcher_.join();
  ::close(pipe_[0]);
  ::close(pipe_[1]);
}

}  // namespace ebb
