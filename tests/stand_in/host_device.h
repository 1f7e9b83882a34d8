// SPDX-License-Identifier: Apache-2.0
// A CUDA device that the host plays, with 256 MiB: linked in place of the library's own, it runs networks on a device without a
// GPU. Streams run as late as they may, so that what does not wait for them is found out, and memory that is given back, or not taken
// or written yet, is not a number.
#pragma once

#include <cstdint>

#include "ebb/core/bytes.h"

namespace ebb::test {

inline constexpr Bytes kHostDeviceBytes = Bytes{256} << 20;

// Whether pinned memory is refused from now on.
void refuse_pinned_memory(bool yes);

// Whether the streams of networks that are made from now on run as early as they may, before the caller's.
void run_copies_first(bool yes);

// Units of a recurrent spiking layer beyond which its weights do not fit the device.
void set_most_units(std::int64_t units);
inline constexpr std::int64_t kAnyUnits = std::int64_t{1} << 40;

// What work takes by the clocks of this device: a kernel over a chunk, and a copy on a stream that is not the caller's. All else takes
// no time.
inline constexpr double kForwardSeconds = 1, kBackwardSeconds = 2;
void set_copy_seconds(double seconds);

// Its L2 cache, and how many bytes a second are copied within that and beyond.
inline constexpr Bytes kHostCacheBytes = Bytes{8} << 20;
inline constexpr double kHostCacheRate = 4e9, kHostMemoryRate = 1e9;

}  // namespace ebb::test
