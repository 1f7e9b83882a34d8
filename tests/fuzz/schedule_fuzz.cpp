// SPDX-License-Identifier: Apache-2.0
// Schedules of the learning rate: any text is read or refused with an Error; what is read survives
// being written and read again, and gives a share of the rate.
#include "ebb/train/schedule.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "ebb/core/error.h"

// NOLINTNEXTLINE(readability-identifier-naming): the name libFuzzer calls
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const ebb::Schedule schedule = ebb::parse_schedule({reinterpret_cast<const char*>(data), size});
    if (ebb::parse_schedule(ebb::to_text(schedule)) != schedule) std::abort();
    for (const std::int64_t i : {std::int64_t{0}, std::int64_t{7}, INT64_MAX}) {
      const double share = schedule.at(i, 100);
      if (!(share >= 0 && share <= 1)) std::abort();
    }
  } catch (const ebb::Error&) {
  }
  return 0;
}
