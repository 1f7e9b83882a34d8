// SPDX-License-Identifier: Apache-2.0
// Streams of a device that the host plays. Work waits in them until somebody waits for it, with all that it must wait for and no more.
// A clock of each says when its work would have ended, had all streams run side by side.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

namespace ebb::test {

class HostQueue {
 public:
  // Of a stream of the caller's.
  HostQueue() = default;
  // Of another. One that is eager runs its work when it is given.
  explicit HostQueue(bool eager) : callers_(false), eager_(eager) {}

  void add(std::function<void()> work, double seconds = 0);
  void run_up_to(std::int64_t count);
  void run_all() { run_up_to(given_); }
  // What comes later begins then at the earliest.
  void wait_until(double time);
  bool is_callers() const { return callers_; }
  std::int64_t given() const { return given_; }
  double time() const { return time_; }

 private:
  struct Work {
    std::function<void()> run;
    double seconds;
  };
  bool callers_ = true, eager_ = false;
  std::deque<Work> waiting_;
  std::int64_t given_ = 0, begun_ = 0;
  double time_ = 0;
};

// What an event is after it has been recorded.
struct HostMark {
  std::shared_ptr<HostQueue> queue;
  std::int64_t given = 0;
  double time = 0;
};

// The queue of a stream; one that the caller made has one from its first use on.
std::shared_ptr<HostQueue> queue_of(void* stream);
void run_all_queues();
// For a stream that is not the caller's, until it is removed.
void* add_queue();
void remove_queue(void* stream);

}  // namespace ebb::test
