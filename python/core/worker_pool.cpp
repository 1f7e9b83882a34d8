// SPDX-License-Identifier: Apache-2.0
#include "python/core/worker_pool.h"

#include <unistd.h>

#include <map>
#include <memory>
#include <mutex>

namespace ebb::python {
namespace {

struct Pool {
  std::mutex mutex;
  pid_t process = 0;
  std::map<int, Workers*> workers;  // by their number
};

}  // namespace

void with_workers(int threads, const std::function<void(Workers&)>& work) {
  // Never destroyed: at exit, and in a forked process, there may be no threads to join.
  static Pool& pool = *new Pool;
  const std::unique_lock lock(pool.mutex, std::try_to_lock);
  if (threads == 1 || !lock.owns_lock()) {
    Workers alone(1);
    return work(alone);
  }
  if (pool.process != getpid()) pool.workers.clear();
  pool.process = getpid();
  auto found = pool.workers.find(threads);
  if (found == pool.workers.end()) {
    auto made = std::make_unique<Workers>(threads);
    found = pool.workers.emplace(threads, made.get()).first;
    made.release();
  }
  work(*found->second);
}

}  // namespace ebb::python
