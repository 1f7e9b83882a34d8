// SPDX-License-Identifier: Apache-2.0
// The results of `ebb bench gruslys` as tables, as figure data in JSON and as CSV.
#pragma once

#include <iosfwd>
#include <string>

#include "ebb/experiments/gruslys_bench.h"

namespace ebb {

void write_gruslys(const GruslysSetup& setup, const GruslysResults& results, std::ostream& out);

// {"experiment":"gruslys",...,"series":{"memory":[...],"steps":[...]}}
std::string gruslys_json(const GruslysSetup& setup, const GruslysResults& results);

// One line a point, after a line of names.
void write_gruslys_csv(const GruslysResults& results, std::ostream& out);

}  // namespace ebb
