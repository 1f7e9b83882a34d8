// SPDX-License-Identifier: Apache-2.0
#include "ebb/core/workers.h"

#include <sched.h>

#include <system_error>

#include "ebb/core/error.h"
#include "ebb/core/flush_to_zero.h"

namespace ebb {
namespace {

// How often a thread looks before it sleeps: some microseconds, longer than the gaps between the
// phases of a time step. Sleeping threads leave their core to others.
constexpr int kLooks = 4000;

void breathe() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Returns once `value` is no longer `old`.
void wait_for_change(const std::atomic<std::uint32_t>& value, std::uint32_t old) {
  for (int i = 0; i < kLooks; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    breathe();
  }
  value.wait(old);
}

}  // namespace

int usable_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  // Fails where the machine has more than the set can say.
  const int count = ::sched_getaffinity(0, sizeof(set), &set) == 0
                        ? CPU_COUNT(&set)
                        : static_cast<int>(std::thread::hardware_concurrency());
  return std::clamp(count, 1, Workers::kMost);
}

Workers::Workers(int threads) {
  if (threads < 1 || threads > kMost) {
    fail(ErrorCode::invalid_argument, "threads is ", threads, "; it must be 1 to ", kMost);
  }
  thrown_.resize(static_cast<std::size_t>(threads));
  try {
    for (int i = 1; i < threads; ++i) threads_.emplace_back([this, i] { serve(i); });
  } catch (const std::system_error& error) {
    end();
    fail(ErrorCode::unavailable, "cannot start ", threads, " threads: ", error.what());
  }
}

Workers::~Workers() { end(); }

void Workers::end() {
  ended_ = true;
  round_.fetch_add(1);
  round_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void Workers::call_one(int thread) {
  try {
    call_(argument_, thread);
  } catch (...) {
    thrown_[static_cast<std::size_t>(thread)] = std::current_exception();
  }
}

void Workers::serve(int thread) {
  const FlushToZero flush;
  std::uint32_t seen = 0;
  while (true) {
    wait_for_change(round_, seen);
    ++seen;
    if (ended_) return;
    call_one(thread);
    if (pending_.fetch_sub(1) == 1) pending_.notify_one();
  }
}

void Workers::run(Call call, void* argument) {
  call_ = call;
  argument_ = argument;
  if (!threads_.empty()) {
    pending_.store(static_cast<std::uint32_t>(threads_.size()));
    round_.fetch_add(1);
    round_.notify_all();
  }
  call_one(0);
  for (std::uint32_t left = pending_.load(); left != 0; left = pending_.load()) {
    wait_for_change(pending_, left);
  }
  std::exception_ptr first;
  for (std::exception_ptr& thrown : thrown_) {
    if (!first) first = thrown;
    thrown = nullptr;
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace ebb
