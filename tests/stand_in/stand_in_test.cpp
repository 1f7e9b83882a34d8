// SPDX-License-Identifier: Apache-2.0
// What only a device that the host plays can be made to do.
#include <gtest/gtest.h>

#include "ebb/run/device_network.h"
#include "tests/gpu/device_run.h"
#include "tests/stand_in/host_device.h"

namespace ebb::test::stand_in_test {
namespace {

DeviceNetworkOptions small_options() {
  DeviceNetworkOptions options;
  options.time_steps = 40;
  options.batch = 2;
  options.layers = {{.cell = "gru", .input = 3, .hidden = 32}};
  options.chunk = 1;
  return options;
}

TEST(StandIn, WithoutPinnedMemoryThereIsARemark) {
  DeviceNetworkOptions options = small_options();
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

// All other tests run them last.
TEST(StandIn, CopiesThatRunFirstGiveTheSameBits) {
  DeviceNetworkOptions options = small_options();
  const DeviceData data = device_data(options);
  DeviceNetwork unlimited(options);
  const DeviceResult all = run_on_device(unlimited, options, data);
  options.host_budget = 1 << 20;
  for (const char* const strategy : {"auto", "async", "disk_revolve"}) {
    options.strategy = strategy;
    options.budget = least_budget_of(options);
    run_copies_first(true);
    DeviceNetwork net(options);
    run_copies_first(false);
    EXPECT_EQ(run_on_device(net, options, data), all) << strategy;
    EXPECT_EQ(run_on_device(net, options, data), all) << strategy << ", the second time";
    const Report report = net.report();
    EXPECT_GT(report.measured.tiers.at(0).written.states, 0) << strategy;
    EXPECT_GT(report.measured.tiers.at(0).read.states, 0) << strategy;
  }
}

}  // namespace
}  // namespace ebb::test::stand_in_test
