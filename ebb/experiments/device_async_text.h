// SPDX-License-Identifier: Apache-2.0
// The results of `ebb bench async --device cuda` as tables and as figure data in JSON.
#pragma once

#include <iosfwd>
#include <string>

#include "ebb/experiments/device_async_bench.h"

namespace ebb {

void write_device_async(const DeviceAsyncSetup& setup, const DeviceAsyncResults& results,
                        std::ostream& out);

// {"experiment":"async","device":...,"series":{"steps":[...],"chunk":[...]}}
std::string device_async_json(const DeviceAsyncSetup& setup, const DeviceAsyncResults& results);

}  // namespace ebb
