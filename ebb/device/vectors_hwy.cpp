// SPDX-License-Identifier: Apache-2.0
#include "ebb/device/packed.h"
#include "ebb/device/vectors.h"

// As in the files with vector code.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#include <hwy/highway.h>

namespace ebb {

std::int64_t vector_bytes() {
  return panel_widths<float>().step * static_cast<std::int64_t>(sizeof(float));
}

std::vector<std::string> vector_sets() {
  std::vector<std::string> names;
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    names.emplace_back(hwy::TargetName(target));
  }
  return names;
}

void use_vector_set(const std::string& set) {
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    if (set == hwy::TargetName(target)) hwy::GetChosenTarget().Update(target);
  }
}

}  // namespace ebb
