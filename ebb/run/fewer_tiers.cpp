// SPDX-License-Identifier: Apache-2.0
#include "ebb/run/fewer_tiers.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "ebb/run/plan_cache.h"

namespace ebb {
namespace {

// The actions of a plan whose tiers have other numbers: what it calls k is numbers[k].
class Renumbered final : public Cursor {
 public:
  Renumbered(std::unique_ptr<Cursor> actions, std::vector<int> numbers)
      : actions_(std::move(actions)), numbers_(std::move(numbers)) {}

  bool next(Action& action) override {
    if (!actions_->next(action)) return false;
    if (auto* const copy = std::get_if<Copy>(&action)) {
      renumber(copy->from);
      renumber(copy->to);
    } else if (auto* const drop = std::get_if<Drop>(&action)) {
      renumber(drop->place);
    }
    return true;
  }
  void finish(std::int64_t n) override { actions_->finish(n); }

 private:
  void renumber(Place& place) const {
    if (place.is_slow()) place = Place::slow(numbers_[static_cast<std::size_t>(place.tier())]);
  }

  std::unique_ptr<Cursor> actions_;
  std::vector<int> numbers_;
};

}  // namespace

std::shared_ptr<const Plan> plan_without(const Chain& chain, const Platform& platform,
                                         const std::vector<bool>& left_out,
                                         const PlanOptions& options) {
  if (std::ranges::count(left_out, true) == 0) return cached_plan(chain, platform, options);
  Platform rest = platform;
  rest.tiers.clear();
  std::vector<int> numbers;
  for (std::size_t k = 0; k < platform.tiers.size(); ++k) {
    if (left_out[k]) continue;
    rest.tiers.push_back(platform.tiers[k]);
    numbers.push_back(static_cast<int>(k));
  }
  const std::shared_ptr<const Plan> made = cached_plan(chain, rest, options);
  auto plan = std::make_shared<Plan>(*made);
  plan->machine.platform.tiers = platform.tiers;
  Prediction& prediction = plan->prediction;
  prediction.peak.assign(1 + platform.tiers.size(), 0);
  prediction.peak[0] = made->prediction.peak[0];
  prediction.moved.assign(platform.tiers.size(), {});
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto k = static_cast<std::size_t>(numbers[i]);
    prediction.peak[1 + k] = made->prediction.peak[1 + i];
    prediction.moved[k] = made->prediction.moved[i];
  }
  plan->set_start(
      [made, numbers] { return std::make_unique<Renumbered>(made->cursor(), numbers); });
  return plan;
}

}  // namespace ebb
