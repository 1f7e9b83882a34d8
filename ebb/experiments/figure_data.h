// SPDX-License-Identifier: Apache-2.0
// Figure data of the experiments: what was found as JSON, and CSV as columns picked from that JSON.
#pragma once

#include <iosfwd>
#include <span>

#include "ebb/core/json.h"
#include "ebb/plan/plan.h"
#include "ebb/plan/platform.h"

namespace ebb {

// `head` and, behind it, what was predicted or measured.
Json found_json(Json head, const Prediction& found, const Platform& platform);

// A column and where a point has its value: "/measured/forwards".
struct CsvColumn {
  const char* name;
  const char* path;
};

// A line of names, then one for each point of an array. What a point does not have is an empty
// field, true is 1, an object the sum of its numbers. Numbers are exact and the same in every locale.
void write_csv(std::span<const CsvColumn> columns, const Json& points, std::ostream& out);

// Puts the points of a series behind those that are there, each with the series' name.
void append_series(const char* series, Json points, Json& all);

}  // namespace ebb
