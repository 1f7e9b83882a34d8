// SPDX-License-Identifier: Apache-2.0
// A plan as data for a page. Private to the room.
#pragma once

#include "ebb/core/json.h"
#include "ebb/view/document.h"

namespace ebb {

Json plan_data(const PlanPage& of);
// `json` is what `ebb plan --json` wrote: the plan is made again from its question.
Json plan_data_from(const Json& json, std::string_view name);
// The array of `ebb plan --json --sweep`.
Json sweep_data(const Json& json, std::string_view name);

}  // namespace ebb
