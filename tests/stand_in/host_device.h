// SPDX-License-Identifier: Apache-2.0
// A CUDA device that the host plays, with 256 MiB: linked in place of the library's own, it runs networks on a device without a
// GPU. Streams run as late as they may, so that what does not wait for them is found out, and memory that is given back, or not taken
// or written yet, is not a number.
#pragma once

#include "ebb/core/bytes.h"

namespace ebb::test {

inline constexpr Bytes kHostDeviceBytes = Bytes{256} << 20;

// Whether pinned memory is refused from now on.
void refuse_pinned_memory(bool yes);

// Whether the streams of networks that are made from now on run as early as they may, before the caller's.
void run_copies_first(bool yes);

// What work takes by the clocks of this device: a kernel over a chunk, and a copy on a stream that is not the caller's. All else takes
// no time.
inline constexpr double kForwardSeconds = 1, kBackwardSeconds = 2;
void set_copy_seconds(double seconds);

}  // namespace ebb::test
