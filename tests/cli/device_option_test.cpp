// SPDX-License-Identifier: Apache-2.0
#include "ebb/cli/device_option.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "ebb/core/error.h"
#include "ebb/device/device_memory.h"
#include "tests/cli/expect.h"
#include "tests/cli/run.h"

namespace ebb::test::device_option_test {
namespace {

using test::Outcome;
using ::testing::HasSubstr;

constexpr const char* kCommands[] = {"probe", "bench async", "bench gruslys", "bench double"};

TEST(DeviceOption, IsTheCpuOrANumberOfCuda) {
  EXPECT_EQ(read_device({}), std::nullopt);
  EXPECT_EQ(read_device("cpu"), std::nullopt);
  EXPECT_EQ(read_device("cuda"), 0);
  EXPECT_EQ(read_device("cuda:0"), 0);
  EXPECT_EQ(read_device("cuda:12"), 12);
  EXPECT_EQ(read_device("auto").has_value(), cuda_missing().empty());
}

TEST(DeviceOption, RefusesOtherWords) {
  for (const char* const command : kCommands) {
    test::expect_refused(command,
                         {{"--device gpu", "device is 'gpu'; it must be cpu, cuda, cuda:N"},
                          {"--device CUDA", "device is 'CUDA'"},
                          {"--device cuda:", "device is 'cuda:'"},
                          {"--device cuda:x", "device is 'cuda:x'"},
                          {"--device cuda:-1", "device is 'cuda:-1'"},
                          {"--device cuda0", "device is 'cuda0'"}});
  }
}

TEST(DeviceOption, SaysWhyThereIsNoDevice) {
  const std::string missing = cuda_missing();
  if (missing.empty()) GTEST_SKIP() << "there is a device";
  for (const char* const command : kCommands) {
    const Outcome outcome = test::command(command, "--device cuda");
    EXPECT_EQ(outcome.code, kBadUsage) << command;
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, HasSubstr("--device cuda: " + missing));
    EXPECT_EQ(test::lines_of(outcome.err).size(), 1U) << outcome.err;
  }
}

TEST(DeviceOption, OptionsOfTheOtherDeviceAreRefused) {
  test::expect_refused("probe",
                       {{"--device cuda --state 1MiB", "--state is for --device cpu alone"},
                        {"--device cuda --tier a:null", "--tier is for --device cpu"},
                        {"--device cuda --chain-out x", "--chain-out is for --device cpu"},
                        {"--device cuda --budget 5%", "--budget is '5%'"}});
  test::expect_refused("bench double",
                       {{"--device cuda --tier a:null", "--tier is for --device cpu"},
                        {"--device cuda --threads 1", "--threads is for --device cpu"},
                        {"--device cuda --rates 5", "--rates is for --device cpu"},
                        {"--device cuda --cell lstm", "must be lif, alif or adlif"},
                        {"--device cuda --density 0", "--density is '0'"},
                        {"--device cuda --host-budget 0", "--host-budget is '0'"},
                        {"--device cuda --json --csv", "--json and --csv contradict"},
                        {"--cell lif", "--cell is for --device cuda"},
                        {"--number f32", "--number is for --device cuda"},
                        {"--host-budget 1GiB", "--host-budget is for --device cuda"}});
  test::expect_refused("bench gruslys",
                       {{"--device cuda --threads 1", "--threads is for --device cpu"},
                        {"--device cuda --memory 0", "--memory is '0'"},
                        {"--number f32", "--number is for --device cuda"}});
  test::expect_refused("bench async",
                       {{"--device cuda --state 1MiB", "--state is for --device cpu"},
                        {"--device cuda --sweeps 1", "--sweeps is for --device cpu"},
                        {"--device cuda --interval 1", "--interval is for --device cpu"},
                        {"--device cuda --vary-sweeps 1", "--vary-sweeps is for --device cpu"},
                        {"--device cuda --tier a:null", "--tier is for --device cpu"},
                        {"--device cuda --chunks 0", "--chunks is '0'"},
                        {"--hidden 32", "--hidden is for --device cuda"},
                        {"--chunks 4", "--chunks is for --device cuda"}});
}

TEST(DeviceOption, HelpSaysWhatAGpuTakes) {
  for (const char* const command : kCommands) test::expect_help(command, {"--device", "On a GPU"});
}

}  // namespace
}  // namespace ebb::test::device_option_test
