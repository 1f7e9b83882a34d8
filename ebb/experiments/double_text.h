// SPDX-License-Identifier: Apache-2.0
// The results of `ebb bench double` as tables, as figure data in JSON and as CSV.
#pragma once

#include <iosfwd>
#include <string>

#include "ebb/experiments/double_bench.h"

namespace ebb {

void write_double(const DoubleSetup& setup, const DoubleResults& results, std::ostream& out);

// {"experiment":"double",...,"arrangements":[{"platform":...,"series":{"longest":[...],"length":
// [...],"largest":[...],"activity":[...],"bandwidth":[...]}},...]}
std::string double_json(const DoubleSetup& setup, const DoubleResults& results);

// One line a point, after a line of names.
void write_double_csv(const DoubleResults& results, std::ostream& out);

}  // namespace ebb
