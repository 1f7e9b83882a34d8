// SPDX-License-Identifier: Apache-2.0
// The page: one HTML file with everything in it that needs no network. What is on it is data for the scripts of ebb/view/page.
#pragma once

#include <string>

#include "ebb/core/json.h"

namespace ebb {

// `data` has a "kind" and a "title"; page/main.js says which kinds there are.
std::string page_of(const Json& data);

// A page as a notebook shows it: in a frame of its own, which scripts of other cells do not reach.
std::string in_frame(const std::string& page);

}  // namespace ebb
