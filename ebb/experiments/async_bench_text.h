// SPDX-License-Identifier: Apache-2.0
// The results of `ebb bench async` as a table, as figure data in JSON and as CSV.
#pragma once

#include <iosfwd>
#include <string>

#include "ebb/experiments/async_bench.h"

namespace ebb {

void write_async(const AsyncSetup& setup, const AsyncResults& results, std::ostream& out);

// {"experiment":"async",...,"series":{"steps":[...],"interval":[...],"ratio":[...]}}
std::string async_json(const AsyncSetup& setup, const AsyncResults& results);

// One line a point, after a line of names; what does not fit has empty fields.
void write_async_csv(const AsyncResults& results, std::ostream& out);

}  // namespace ebb
