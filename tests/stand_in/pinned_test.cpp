// SPDX-License-Identifier: Apache-2.0
// What only a device that the host plays can be made to do.
#include <gtest/gtest.h>

#include "ebb/run/device_network.h"
#include "tests/gpu/device_run.h"
#include "tests/stand_in/host_device.h"

namespace ebb::test::pinned_test {
namespace {

TEST(StandIn, WithoutPinnedMemoryThereIsARemark) {
  DeviceNetworkOptions options;
  options.time_steps = 40;
  options.batch = 2;
  options.layers = {{.cell = "gru", .input = 3, .hidden = 32}};
  options.chunk = 1;
  const DeviceData data = device_data(options);
  DeviceNetwork unlimited(options);
  const DeviceResult all = run_on_device(unlimited, options, data);
  options.budget = least_budget_of(options);
  options.host_budget = 1 << 20;
  refuse_pinned_memory(true);
  DeviceNetwork net(options);
  refuse_pinned_memory(false);
  EXPECT_EQ(run_on_device(net, options, data), all);
  const Report report = net.report();
  EXPECT_GT(report.measured.tiers.at(0).written.states, 0);
  ASSERT_EQ(report.remarks.size(), 1U);
  EXPECT_NE(report.remarks[0].find("pinned"), std::string::npos);
}

}  // namespace
}  // namespace ebb::test::pinned_test
