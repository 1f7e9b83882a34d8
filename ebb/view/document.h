// SPDX-License-Identifier: Apache-2.0
// What pages are made of: plans, and files that ebb has written.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "ebb/plan/plan.h"
#include "ebb/plan/text.h"

namespace ebb {

inline constexpr double kCurveSeconds = 3;
// Plans of more actions take longer to replay than a page is waited for.
inline constexpr std::int64_t kMostActions = 50'000'000;

struct PlanPage {
  const PlanQuestion& question;
  const Plan& plan;
  std::optional<Bytes> least = {};
  // For plans at other budgets and by other strategies; 0: none are shown.
  double curve_seconds = kCurveSeconds;
  // Of plans with more it is not shown what happens when.
  std::int64_t most_actions = kMostActions;
  // Whether its numbers can be changed on the page, where this program has the planner for that and all steps are alike.
  bool explorer = true;
};

// The page of a plan.
std::string plan_page(const PlanPage& of);

// The page of what `ebb plan --json` (with --sweep too), `ebb bench --json`, Report::json, Python's Report.as_dict and
// CompressionReport.to_json, Trace::json, `ebb train --json` or metrics.jsonl say. `name` opens every error and is the page's title where there is no better one. Throws Error(invalid_argument) for
// other text.
std::string document_page(std::string_view text, std::string_view name);

// The page of a file with such text or of the directory of a training run. Throws Error(io) too.
std::string file_page(const std::filesystem::path& path);

}  // namespace ebb
