// SPDX-License-Identifier: Apache-2.0
// A plan as a picture in characters: steps across, time down, one row per pass. Only for short
// plans; the figures of a plan are plan_text's.
#pragma once

#include <cstdint>
#include <iosfwd>

#include "ebb/plan/plan.h"

namespace ebb {

// At most 100 steps and 400 actions, at least one step.
bool has_picture(const Plan& plan, std::int64_t steps);

// Draws a plan for which has_picture() holds, with its legend; at most 60 rows, then how many more
// there are.
void draw_picture(const Plan& plan, std::int64_t steps, std::ostream& out);

}  // namespace ebb
