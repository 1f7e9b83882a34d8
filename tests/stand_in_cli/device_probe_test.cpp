// SPDX-License-Identifier: Apache-2.0
// `ebb probe --device cuda`, on a device that the host plays, whose rates are known.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "ebb/run/device_profile.h"
#include "tests/cli/expect.h"
#include "tests/cli/run.h"
#include "tests/stand_in/host_device.h"

namespace ebb::test::device_probe_test {
namespace {

using nlohmann::json;
using test::command;
using test::Outcome;
using ::testing::HasSubstr;

// Copies on streams of their own take seconds of this device's clock.
class DeviceProbe : public testing::Test {
 protected:
  void SetUp() override { set_copy_seconds(0.5); }
  void TearDown() override { set_copy_seconds(1); }
};

TEST_F(DeviceProbe, MeasuresWhatIsThere) {
  DeviceProfileOptions options;
  options.transfer = 1_MiB;
  const DeviceProfile found = profile_device(options);
  ASSERT_GE(found.copies.size(), 6U);
  Bytes last = 0;
  for (const DeviceProfile::Copies& each : found.copies) {
    EXPECT_GT(each.set, last);
    last = each.set;
    const double rate = each.set <= kHostCacheBytes ? kHostCacheRate : kHostMemoryRate;
    EXPECT_NEAR(each.rate, rate, 1e-6 * rate) << each.set;
  }
  EXPECT_LE(last, kHostDeviceBytes) << "no more than the device has";
  EXPECT_NEAR(found.cache_rate, kHostCacheRate, 1);
  EXPECT_NEAR(found.memory_rate, kHostMemoryRate, 1);
  const double way = static_cast<double>(1_MiB) / 0.5;
  EXPECT_NEAR(found.to_host.rate, way, 1);
  EXPECT_NEAR(found.to_device.rate, way, 1);
  EXPECT_NEAR(found.both_rate, 2 * way, 1);
  EXPECT_TRUE(found.duplex());
  EXPECT_TRUE(found.pinned);
  for (const double seconds : {found.launch_seconds, found.answer_seconds, found.to_host.latency,
                               found.to_device.latency}) {
    EXPECT_GT(seconds, 0);
    EXPECT_LT(seconds, 0.1);
  }
}

TEST_F(DeviceProbe, BecomesAPlatform) {
  DeviceProfile found;
  found.facts.unused = 5_GiB;
  found.memory_rate = 2e12;
  found.to_host = {5e10, 1e-5};
  found.to_device = {4e10, 2e-5};
  found.both_rate = 6e10;
  const Platform platform = platform_of(found);
  EXPECT_EQ(platform.fast, 5_GiB);
  EXPECT_EQ(platform.copy_rate, 2e12);
  ASSERT_EQ(platform.tiers.size(), 1U);
  const Tier& host = platform.tiers[0];
  EXPECT_EQ(host.name, "host");
  EXPECT_EQ(host.write_rate, 5e10);
  EXPECT_EQ(host.read_rate, 4e10);
  EXPECT_EQ(host.write_latency, 1e-5);
  EXPECT_EQ(host.read_latency, 2e-5);
  EXPECT_FALSE(host.duplex) << "both at once are hardly faster than one";
  found.both_rate = 8e10;
  EXPECT_TRUE(found.duplex());
}

TEST_F(DeviceProbe, SaysWhatItFound) {
  const Outcome outcome = command("probe", "--device cuda");
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  for (const char* text : {"a device played by the host: compute capability 9.0, 1 multiprocessors",
                           "256 MiB, of which", "L2 cache", "8 MiB", "until the host knows",
                           "bytes copied a second", "4x", "1x", "copied, beyond any cache",
                           "the best of sets that fit", "Tier host: pinned memory", "write", "read",
                           ", latency", "both directions at once", "duplex"}) {
    EXPECT_THAT(outcome.out, HasSubstr(text));
  }
  test::expect_fits_a_terminal(outcome.out);
}

TEST_F(DeviceProbe, WritesWhatPlansRead) {
  const TemporaryFile platform("platform.json", "");
  const Outcome outcome =
      command("probe", "--device cuda:0 --json --budget 3MiB --platform-out " + platform.path());
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  const json found = json::parse(outcome.out);
  EXPECT_EQ(found["device"]["memory"], kHostDeviceBytes);
  EXPECT_EQ(found["device"]["l2"], kHostCacheBytes);
  EXPECT_GT(found["l2_rate"], found["memory_rate"]);
  EXPECT_EQ(found["host"]["duplex"], true);
  EXPECT_EQ(found["copies"][0]["set"], 2 << 20);
  EXPECT_EQ(found["platform"]["fast"], 3 << 20);
  EXPECT_EQ(found["platform"]["copy"], found["memory_rate"]);
  const Outcome planned = test::plan("--steps 100 --state 64KiB --tape 256KiB --platform " +
                                     platform.path() + " --strategy async --json");
  ASSERT_EQ(planned.code, kDone) << planned.err;
  EXPECT_TRUE(json::parse(planned.out)["peak"].contains("host"));
}

TEST_F(DeviceProbe, SaysThatMemoryIsNotPinned) {
  refuse_pinned_memory(true);
  const Outcome outcome = command("probe", "--device cuda");
  refuse_pinned_memory(false);
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("Tier host: common memory, as the system gave no pinned"));
}

}  // namespace
}  // namespace ebb::test::device_probe_test
