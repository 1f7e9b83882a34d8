// SPDX-License-Identifier: Apache-2.0
// The results of `ebb bench gruslys --device cuda` as tables and as figure data in JSON.
#pragma once

#include <iosfwd>
#include <string>

#include "ebb/experiments/device_gruslys_bench.h"

namespace ebb {

void write_device_gruslys(const DeviceGruslysSetup& setup, const DeviceGruslysResults& results,
                          std::ostream& out);

// {"experiment":"gruslys","device":...,"series":{"memory":[...],"steps":[...]}}
std::string device_gruslys_json(const DeviceGruslysSetup& setup,
                                const DeviceGruslysResults& results);

}  // namespace ebb
