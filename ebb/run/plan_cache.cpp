// SPDX-License-Identifier: Apache-2.0
#include "ebb/run/plan_cache.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "ebb/core/table_memory.h"
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

// Actions in a list: some hundred KiB at most, where the tables that most plans are read from would
// stay in memory for as long as the plan does.
constexpr std::int64_t kListed = 1 << 13;

class ListCursor : public Cursor {
 public:
  explicit ListCursor(std::shared_ptr<const std::vector<Action>> list) : list_(std::move(list)) {}
  bool next(Action& action) override {
    if (at_ == list_->size()) return false;
    action = (*list_)[at_++];
    return true;
  }

 private:
  std::shared_ptr<const std::vector<Action>> list_;
  std::size_t at_ = 0;
};

Plan without_tables(Plan plan) {
  if (plan.length_unknown || plan.prediction.actions > kListed) return plan;
  auto list = std::make_shared<std::vector<Action>>();
  list->reserve(static_cast<std::size_t>(plan.prediction.actions));
  const auto cursor = plan.cursor();
  for (Action action{Advance{}}; cursor->next(action);) list->push_back(action);
  plan.set_start([list = std::shared_ptr<const std::vector<Action>>(std::move(list))] {
    return std::make_unique<ListCursor>(list);
  });
  return plan;
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
  reset_table_peak();
  Plan made = make_plan(chain, platform, options);
  made.tables = table_peak();
  auto plan = std::make_shared<const Plan>(without_tables(std::move(made)));
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
