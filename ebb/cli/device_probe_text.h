// SPDX-License-Identifier: Apache-2.0
// What `ebb probe --device cuda` found, for people and as JSON.
#pragma once

#include <iosfwd>
#include <string>

#include "ebb/run/device_profile.h"

namespace ebb {

void write_device_probe(const DeviceProfile& found, std::ostream& out);

// {"device":{"name","compute_capability","multiprocessors","memory","free","l2"},"copies":[{"set","rate"},...],"memory_rate","l2_rate",
// "host":{"pinned","to_host","to_device","both","to_host_latency","to_device_latency","duplex"},"launch","answer","platform"}: the last as
// `ebb plan` reads it; rates are bytes a second, of copies those that are copied.
std::string to_json(const DeviceProfile& found, const Platform& platform);

}  // namespace ebb
