// SPDX-License-Identifier: Apache-2.0
// What only a device that the host plays can be made to do.
#include <gtest/gtest.h>

#include "ebb/device/device_memory.h"
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

Report report_of(const DeviceNetworkOptions& options, const DeviceData& data, double copy) {
  set_copy_seconds(copy);
  DeviceNetwork net(options);
  run_on_device(net, options, data);
  return net.report();
}

// Every third state leaves, each in one and a half of the time in which the next is made.
TEST(StandIn, NothingWaitsForCopiesOut) {
  DeviceNetworkOptions options = small_options();
  options.time_steps = 120;
  options.host_budget = 40 * device_plan(options).state_bytes;
  options.strategy = "disk_revolve";  // it waits for each copy in
  options.budget = least_budget_of(options) + 6000;
  const DeviceData data = device_data(options);
  const Measured at_once = report_of(options, data, 0).measured;
  const Report report = report_of(options, data, 1.5);
  const TierTraffic& host = report.measured.tiers.at(0);
  EXPECT_EQ(host.written.states, 40);
  EXPECT_LE(report.measured.seconds, at_once.seconds + 1.5 * static_cast<double>(host.read.states));
  EXPECT_LE(report.measured.peak[0], report.predicted.peak[0]);
}

// Forward needs less than backward. Others may have the rest, whatever is under way.
TEST(StandIn, CopiesOutTakeNothingFromOthers) {
  DeviceNetworkOptions options = small_options();
  const DeviceData data = device_data(options);
  options.host_budget = 1 << 20;
  options.budget = least_budget_of(options);
  const DevicePlan planned = device_plan(options);
  const Ledger ledger(planned.plan.prediction.peak[0]);
  options.ledger = ledger;
  DeviceNetwork net(options);
  Account other = ledger.open("another");
  other.charge(planned.tape_bytes);
  DeviceMemory x(static_cast<Bytes>(2 * data.x.size()));
  const Bytes kept = planned.tape_bytes + planned.state_bytes;  // the last tape, the live state
  net.forward(x.data(), nullptr);
  EXPECT_EQ(ledger.live() - other.live(), kept);
  other.release(planned.tape_bytes);
  net.forward(x.data(), nullptr);
  EXPECT_EQ(ledger.live(), kept);
  net.backward(nullptr);
  EXPECT_EQ(ledger.live(), 0);
}

}  // namespace
}  // namespace ebb::test::stand_in_test
