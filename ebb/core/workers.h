// SPDX-License-Identifier: Apache-2.0
// Threads that work on one thing together, many times a second.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <thread>
#include <type_traits>
#include <vector>

namespace ebb {

// How many processors this process may run on, at least 1: those of a job or of taskset, not of the
// machine, on which more threads would wait for each other.
int usable_processors();

class Workers {
 public:
  // The caller's thread and threads - 1 more, which flush to zero (flush_to_zero.h). Throws Error(invalid_argument) unless threads is 1 to
  // kMost, Error(unavailable) if the system refuses to start them.
  static constexpr int kMost = 1024;
  explicit Workers(int threads);
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  ~Workers();

  int size() const { return static_cast<int>(threads_.size()) + 1; }

  // Calls work(thread) for each thread 0 <= thread < size() at the same time, the caller's being 0,
  // and returns when all have returned. What one of them throws is thrown here. From one thread at a
  // time, never from within work.
  template <class Work>
  void all(Work&& work) {
    using Plain = std::remove_reference_t<Work>;
    run([](void* it, int thread) { (*static_cast<Plain*>(it))(thread); }, &work);
  }
  // Splits [0,count) evenly, at multiples of `grain`: work(from, to) for each piece that is not
  // empty. Where the cuts are does not depend on how fast anyone is.
  template <class Work>
  void split(std::int64_t count, std::int64_t grain, Work&& work) {
    split_by_thread(count, grain,
                    [&work](int, std::int64_t from, std::int64_t to) { work(from, to); });
  }
  // The same with the thread that a piece is on: work(thread, from, to).
  template <class Work>
  void split_by_thread(std::int64_t count, std::int64_t grain, Work&& work) {
    const std::int64_t blocks = (count + grain - 1) / grain;
    if (size() == 1 || blocks <= 1) {
      if (count > 0) work(0, std::int64_t{0}, count);
      return;
    }
    all([&](int thread) {
      const std::int64_t from = blocks * thread / size() * grain;
      const std::int64_t to = std::min(count, blocks * (thread + 1) / size() * grain);
      if (from < to) work(thread, from, to);
    });
  }

 private:
  using Call = void (*)(void*, int);
  void run(Call call, void* argument);
  void serve(int thread);
  void call_one(int thread);
  void end();

  Call call_ = nullptr;
  void* argument_ = nullptr;
  std::atomic<std::uint32_t> round_ = 0;    // counts calls
  std::atomic<std::uint32_t> pending_ = 0;  // threads that have not returned yet
  std::atomic<bool> ended_ = false;
  std::vector<std::exception_ptr> thrown_;
  std::vector<std::thread> threads_;
};

}  // namespace ebb
