// SPDX-License-Identifier: Apache-2.0
#include "tests/stand_in/host_queue.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "tests/stand_in/host_device.h"

namespace ebb::test {
namespace {

bool copies_first = false;

std::map<void*, std::shared_ptr<HostQueue>>& queues() {
  static std::map<void*, std::shared_ptr<HostQueue>> all;
  return all;
}

}  // namespace

void run_copies_first(bool yes) { copies_first = yes; }

void HostQueue::add(std::function<void()> work, double seconds) {
  waiting_.push_back({std::move(work), seconds});
  ++given_;
  if (eager_) run_all();
}

void HostQueue::run_up_to(std::int64_t count) {
  while (begun_ < count) {
    const Work next = std::move(waiting_.front());
    waiting_.pop_front();
    ++begun_;  // what it waits for may wait for what came before it
    next.run();
    time_ += next.seconds;
  }
}

void HostQueue::wait_until(double time) { time_ = std::max(time_, time); }

std::shared_ptr<HostQueue> queue_of(void* stream) {
  std::shared_ptr<HostQueue>& queue = queues()[stream];
  if (queue == nullptr) queue = std::make_shared<HostQueue>();
  return queue;
}

void run_all_queues() {
  for (const auto& [stream, queue] : queues()) queue->run_all();
}

void* add_queue() {
  auto queue = std::make_shared<HostQueue>(copies_first);
  void* const stream = queue.get();
  queues()[stream] = std::move(queue);
  return stream;
}

void remove_queue(void* stream) {
  queue_of(stream)->run_all();
  queues().erase(stream);
}

}  // namespace ebb::test
