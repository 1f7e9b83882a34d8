// SPDX-License-Identifier: Apache-2.0
#include "ebb/view/explorer.h"

#include <cstdint>
#include <exception>
#include <utility>

#include "ebb/core/error.h"
#include "ebb/core/json.h"
#include "ebb/plan/strategies.h"
#include "ebb/view/curve.h"
#include "ebb/view/plan_data.h"

namespace ebb {
namespace {

// Longer plans are replayed too slowly for a slider.
constexpr std::int64_t kMostDrawnActions = 1'000'000;

template <class Find>
std::string answer_of(const Find& find) {
  try {
    return find().dump();
  } catch (const std::exception& error) {
    return Json({{"error", error.what()}}).dump(-1, ' ', false, Json::error_handler_t::replace);
  }
}

}  // namespace

std::string Explorer::plan(std::string_view question) {
  return answer_of([&] {
    last_.reset();
    PlanQuestion asked = question_from_json(question);
    Plan plan = make_plan(asked.chain, asked.platform, asked.options);
    const auto least = least_budget(asked.chain, asked.platform, asked.options);
    last_.emplace(Answered{std::move(asked), std::move(plan)});
    return plan_data({.question = last_->question,
                      .plan = last_->plan,
                      .least = least,
                      .curve_seconds = 0,
                      .most_actions = kMostDrawnActions});
  });
}

std::string Explorer::curve(double seconds) const {
  return answer_of([&]() -> Json {
    if (!last_) fail(ErrorCode::invalid_argument, "there is no plan yet to draw a curve around");
    return {{"curve", budget_curve(last_->question, last_->plan, seconds)}};
  });
}

}  // namespace ebb
