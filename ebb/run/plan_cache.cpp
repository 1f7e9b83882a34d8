// SPDX-License-Identifier: Apache-2.0
#include "ebb/run/plan_cache.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <sstream>
#include <string>

#include "ebb/plan/text.h"

namespace ebb {
namespace {

constexpr std::size_t kKept = 16;

struct Cache {
  struct CachedPlan {
    std::string key;
    std::shared_ptr<const Plan> plan;
  };
  std::mutex mutex;
  std::deque<CachedPlan> entries;  // the last used in front
  std::int64_t hits = 0;
};

Cache& cache() {
  static Cache plans;
  return plans;
}

std::string key_of(const Chain& chain, const Platform& platform, const PlanOptions& options) {
  std::ostringstream key;
  key << to_json(chain) << to_json(platform) << options.strategy << ' '
      << options.budget.value_or(-1) << ' ' << options.slots.value_or(-1) << ' '
      << options.working.value_or(-1) << ' ' << options.period.value_or(-1) << ' ' << options.sync
      << options.length_unknown << options.tapes_stay;
  for (const std::int64_t interval : options.intervals) key << ' ' << interval;
  return key.str();
}

}  // namespace

std::shared_ptr<const Plan> cached_plan(const Chain& chain, const Platform& platform,
                                        const PlanOptions& options) {
  std::string key = key_of(chain, platform, options);
  Cache& plans = cache();
  {
    const std::scoped_lock lock(plans.mutex);
    const auto found = std::ranges::find(plans.entries, key, &Cache::CachedPlan::key);
    if (found != plans.entries.end()) {
      ++plans.hits;
      std::rotate(plans.entries.begin(), found, found + 1);
      return plans.entries.front().plan;
    }
  }
  auto plan = std::make_shared<const Plan>(make_plan(chain, platform, options));
  const std::scoped_lock lock(plans.mutex);
  plans.entries.push_front({std::move(key), plan});
  if (plans.entries.size() > kKept) plans.entries.pop_back();
  return plan;
}

std::int64_t cached_plan_hits() {
  const std::scoped_lock lock(cache().mutex);
  return cache().hits;
}

}  // namespace ebb
