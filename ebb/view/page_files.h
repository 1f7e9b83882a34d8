// SPDX-License-Identifier: Apache-2.0
// The files of ebb/view/page.
#pragma once

#include <span>

#include "ebb/core/embedded_file.h"

namespace ebb {

// Under their names; scripts in the order in which they build on each other.
extern const std::span<const EmbeddedFile> kPageFiles;
// What pages with an explorer have besides: scripts, planner_worker.js, which is one for the worker, and the planner. Empty where it was
// not built.
extern const std::span<const EmbeddedFile> kExplorerFiles;

}  // namespace ebb
