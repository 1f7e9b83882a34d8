// SPDX-License-Identifier: Apache-2.0
// The word of a tier to plan for: any text is read or refused with an Error; what is read makes a
// sound platform.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "ebb/core/error.h"
#include "ebb/plan/words.h"

// NOLINTNEXTLINE(readability-identifier-naming): the name libFuzzer calls
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const ebb::Chain chain =
      ebb::Chain::uniform(1, ebb::StepCost{.state = 1 << 20, .tape = 1 << 20});
  ebb::Tier tier;
  try {
    tier = ebb::PlanReader().tier({reinterpret_cast<const char*>(data), size}, chain);
  } catch (const ebb::Error&) {
    return 0;
  }
  try {
    ebb::check_platform({"", ebb::kUnlimited, {tier}});
  } catch (const ebb::Error&) {
    // Two times of 1e15 seconds each may add up to more than a latency may be.
    if (tier.write_latency <= 1e15 && tier.read_latency <= 1e15) std::abort();
  }
  return 0;
}
