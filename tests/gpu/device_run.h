// SPDX-License-Identifier: Apache-2.0
// Forward and backward of one net on made-up data: on the device, and on the CPU in double.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ebb/run/device_network.h"

namespace ebb::test {

// As an array on the device holds them.
std::vector<std::byte> as_number(const std::vector<float>& from, const std::string& number);

// Floats that `number` has, so that the device and the CPU read the same.
std::vector<float> made_up(std::int64_t count, float scale, const std::string& number,
                           std::uint64_t seed);

// What goes in and what comes out; empty: not given, or not asked for.
struct DeviceData {
  std::vector<float> parameters, x, of_y, initial, of_final;
};
struct DeviceResult {
  std::vector<float> y, final, of_x, of_initial, gradient;
  friend bool operator==(const DeviceResult&, const DeviceResult&) = default;
};

// The same net on the CPU.
Network<float> network_of(const DeviceNetworkOptions& options);
// The row of each number of a parameter, whose weights may be sparse.
std::vector<std::int64_t> rows_of(const Network<float>& net, const NetworkParameter& own);

// Bytes with which such a network runs, and not with fewer.
Bytes least_budget_of(DeviceNetworkOptions options);

DeviceData device_data(const DeviceNetworkOptions& options);
DeviceResult run_on_device(DeviceNetwork& net, const DeviceNetworkOptions& options,
                           const DeviceData& data);
DeviceResult run_on_cpu(const DeviceNetworkOptions& options, const DeviceData& data);

}  // namespace ebb::test
