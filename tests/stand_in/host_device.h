// SPDX-License-Identifier: Apache-2.0
// A CUDA device that the host plays, with 256 MiB: linked in place of the library's own, it runs networks on a device without a
// GPU. The caller's stream runs at once; other streams run as late as they may, so that what does not wait for them is found out, and
// memory that is given back, or not written yet, is not a number.
#pragma once

#include "ebb/core/bytes.h"

namespace ebb::test {

inline constexpr Bytes kHostDeviceBytes = Bytes{256} << 20;

// Whether pinned memory is refused from now on.
void refuse_pinned_memory(bool yes);

}  // namespace ebb::test
