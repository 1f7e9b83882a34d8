// SPDX-License-Identifier: Apache-2.0
// Actions and places in the words of error messages. Their JSON form is in text.h.
#pragma once

#include <string>

#include "ebb/plan/action.h"
#include "ebb/plan/platform.h"

namespace ebb {

// "work", "fast", a tier's name, or "place 9" for what the platform does not have.
std::string place_text(Place place, const Platform& platform);

// "advance 3..5", "copy state 3 from work to disk", "drop tape 4 from fast".
std::string action_text(const Action& action, const Platform& platform);

}  // namespace ebb
