// SPDX-License-Identifier: Apache-2.0
// The value of --tier: any text is read or refused with an Error; what is read makes a sound
// platform.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "ebb/cli/tier_option.h"
#include "ebb/core/error.h"

// NOLINTNEXTLINE(readability-identifier-naming): the name libFuzzer calls
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ebb::TierOption option;
  try {
    option = ebb::parse_tier({reinterpret_cast<const char*>(data), size});
  } catch (const ebb::Error&) {
    return 0;
  }
  try {
    ebb::check_platform({"", ebb::kUnlimited, {option.sized(1 << 20)}});
  } catch (const ebb::Error&) {
    // Two times of 1e15 seconds each may add up to more than a latency may be.
    if (option.tier.write_latency <= 1e15 && option.tier.read_latency <= 1e15) std::abort();
  }
  return 0;
}
