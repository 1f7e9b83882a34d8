// SPDX-License-Identifier: Apache-2.0
// The results of `ebb bench double --device cuda` as tables, as figure data in JSON and as CSV.
#pragma once

#include <iosfwd>
#include <string>

#include "ebb/experiments/device_double_bench.h"

namespace ebb {

void write_device_double(const DeviceDoubleSetup& setup, const DeviceDoubleResults& results,
                         std::ostream& out);

// {"experiment":"double","device":...,"series":{"longest":[...],"length":[...],"largest":[...]},"goals":{...}}
std::string device_double_json(const DeviceDoubleSetup& setup, const DeviceDoubleResults& results);

}  // namespace ebb
