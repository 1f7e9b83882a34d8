// SPDX-License-Identifier: Apache-2.0
// What a page asks when its reader moves a slider, text for text. The page's own planner, compiled to WebAssembly, answers with it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "ebb/plan/text.h"

namespace ebb {

// A question that is not answered has the answer {"error":"..."}.
class Explorer {
 public:
  // The data of a plan's page, without time against budget. `question` is JSON as question_from_json takes it.
  std::string plan(std::string_view question);
  // {"curve":...} as on the page of the last plan, if one was found: time against budget.
  std::string curve(double seconds) const;

 private:
  struct Answered {
    PlanQuestion question;
    Plan plan;
  };
  std::optional<Answered> last_;
};

}  // namespace ebb
