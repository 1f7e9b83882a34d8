// SPDX-License-Identifier: Apache-2.0
// `ebb bench --device cuda` end to end, on a device that the host plays.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>

#include "ebb/core/error.h"
#include "ebb/device/cuda_products.h"
#include "ebb/device/device_memory.h"
#include "ebb/run/device_network.h"
#include "tests/cli/expect.h"
#include "tests/cli/run.h"
#include "tests/stand_in/host_device.h"
#include "tests/temporary_folder.h"

namespace ebb::test::device_commands_test {
namespace {

using nlohmann::json;
using test::command;
using test::Outcome;
using ::testing::HasSubstr;

// As small as can be.
constexpr const char* kDouble =
    "--device cuda --number f32 --hidden 32 --batch 2 --input 8 --weight-scale 40 --budget 24KiB "
    "--host-budget 1MiB --longer 3 --quick ";
constexpr const char* kGruslys =
    "--device cuda --number f32 --hidden 32 --batch 2 --input 8 --steps 64 --memory 20,100 "
    "--lengths 32 --budgets 50 --quick ";
constexpr const char* kAsync =
    "--device cuda:0 --number f32 --hidden 32 --batch 2 --input 8 --steps 32,64 --chunks 2,4 "
    "--budget 15KiB --host-budget 1MiB --quick ";

json found_by(const std::string& name, const std::string& words) {
  const Outcome outcome = command("bench " + name, words + "--json");
  EXPECT_EQ(outcome.code, kDone) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  return json::parse(outcome.out);
}

// Of a device that others use.
constexpr Bytes kLeftBytes = CudaProducts::kWorkspace + (Bytes{160} << 10);

void check(const json& point) {
  ASSERT_EQ(point["fits"], true) << point;
  EXPECT_EQ(point["same_gradient"], true) << point;
  EXPECT_EQ(point["pinned"], true) << point;
  EXPECT_EQ(point["predicted"]["forwards"], point["measured"]["forwards"]) << point;
  EXPECT_EQ(point["predicted"]["moved"], point["measured"]["moved"]) << point;
  if (!point["budget"].is_null()) {
    EXPECT_LE(point["measured"]["peak"]["fast"], point["budget"]) << point;
  }
  EXPECT_GT(point["measured"]["ratio"], 0) << point;
  EXPECT_GE(point["spread"], 0) << point;
  EXPECT_GT(point["chunk"], 0) << point;
}

void expect_csv(const std::string& name, const std::string& words, std::size_t trials) {
  const Outcome outcome = command("bench " + name, words + "--csv");
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  const std::vector<std::string> lines = test::lines_of(outcome.out);
  ASSERT_EQ(lines.size(), 1 + trials) << outcome.out;
  for (const std::string& line : lines) {
    EXPECT_EQ(std::count(line.begin(), line.end(), ','), 19) << line;
  }
}

void expect_text(const std::string& name, const std::string& words,
                 std::initializer_list<const char*> texts) {
  const Outcome outcome = command("bench " + name, words);
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  for (const char* text : texts) EXPECT_THAT(outcome.out, HasSubstr(text));
  test::expect_fits_a_terminal(outcome.out);
}

// One more time step does not.
void expect_most(const json& found, std::int64_t time_steps) {
  DeviceNetworkOptions options;
  options.time_steps = time_steps;
  options.batch = 2;
  options.layers = {{.cell = "lif", .input = 8, .hidden = 32}};
  options.number = "f32";
  options.budget = found["budget"];
  options.strategy = "store_all";
  options.makes_inputs = true;
  EXPECT_NO_THROW(device_plan(options));
  ++options.time_steps;
  EXPECT_THROW(device_plan(options), Error);
}

TEST(DeviceDouble, FindsTheLongestAndTheWidest) {
  const json found = found_by("double", kDouble);
  EXPECT_EQ(found["experiment"], "double");
  EXPECT_EQ(found["device"], "a device played by the host");
  const std::int64_t plain = found["plain_time_steps"];
  EXPECT_GT(plain, 4);
  expect_most(found, plain);
  EXPECT_GT(found["plain_seconds_per_time_step"], 0);
  const json& series = found["series"];
  ASSERT_EQ(series["longest"].size(), 5U);
  ASSERT_EQ(series["length"].size(), 2U);
  ASSERT_EQ(series["largest"].size(), 5U);
  for (const json& points : series) {
    for (const json& point : points) check(point);
  }
  EXPECT_EQ(series["longest"][0]["strategy"], "store_all");
  EXPECT_EQ(series["longest"][0]["most"], plain);
  EXPECT_EQ(series["longest"][0]["time_steps"], plain);
  EXPECT_GT(series["longest"][1]["most"], plain) << "checkpoints on the device go further";
  const json& far = series["longest"][4];
  EXPECT_EQ(far["strategy"], "auto");
  EXPECT_EQ(far["time_steps"], 10 * plain);
  EXPECT_EQ(far["more_may_fit"], true) << "the host has room";
  EXPECT_GT(series["longest"][2]["measured"]["moved"]["host"]["written"], 0);
  EXPECT_EQ(series["length"][1]["time_steps"], 3 * plain);
  EXPECT_GT(series["largest"][4]["most"], series["largest"][0]["most"]);
  EXPECT_GT(series["largest"][4]["hidden"], 32);
  EXPECT_EQ(found["goals"]["longest_met"], true);
  EXPECT_EQ(found["goals"]["longest_time"], far["measured"]["ratio"]);
}

TEST(DeviceDouble, RunsFewerTimeStepsWhereThatIsAsked) {
  const json found = found_by("double", kDouble + std::string("--steps 5 "));
  EXPECT_EQ(found["plain_time_steps"], 5);
  EXPECT_EQ(found["series"]["longest"][4]["time_steps"], 50);
}

TEST(DeviceDouble, WritesTables) {
  expect_text("double", kDouble,
              {"a device played by the host", "lif, 8 inputs, 32 units", "(a) The longest sequence",
               "(b) What 10 times", "(c) Time against the length", "(d) The widest net", "or more",
               "single_remote", "auto: ", "goal 10x: met", "goal 4x", "as long: predicted",
               "as wide: predicted", "against plain in the budget", "the same bits as plain's"});
}

TEST(DeviceDouble, WritesCsv) { expect_csv("double", kDouble, 5 + 2 + 5); }

TEST(DeviceDouble, RunsOtherCells) {
  EXPECT_EQ(found_by("double", kDouble + std::string("--cell alif --steps 5 "))["cell"], "alif");
}

TEST(DeviceDouble, RunsSparseNets) {
  const json found = found_by("double", kDouble + std::string("--density 10 --steps 5 "));
  EXPECT_EQ(found["density"], 0.1);
  EXPECT_LT(found["parameters"], 32 * 32) << "of 1024 recurrent weights a tenth is there";
  for (const json& points : found["series"]) {
    for (const json& point : points) check(point);
  }
}

TEST(DeviceDouble, RunsTheWidestNetThatTheDeviceTakes) {
  set_most_units(96);
  const json found = found_by("double", kDouble + std::string("--steps 5 "));
  set_most_units(kAnyUnits);
  const json& wide = found["series"]["largest"][4];
  EXPECT_EQ(wide["hidden"], 96);
  EXPECT_GE(wide["most"], 128) << "by the budget alone";
  check(wide);
  const double reached = 96 / found["series"]["largest"][0]["most"].get<double>();
  EXPECT_EQ(found["goals"]["largest"], reached);
  EXPECT_EQ(found["goals"]["largest_met"], false);
}

// Where the device takes no such net at all.
TEST(DeviceDouble, SaysWhyTheDeviceRefuses) {
  const Outcome outcome = command("bench double", "--device cuda --hidden 33 --quick");
  EXPECT_EQ(outcome.code, kBadUsage);
  EXPECT_THAT(outcome.err, HasSubstr("must be a multiple of 32 in bf16"));
}

// Wide nets have states that are larger than what the host gives; the narrow one's fits.
TEST(DeviceDouble, GoesOnWhereTheHostHasNoRoom) {
  const json found =
      found_by("double",
               "--device cuda --number f32 --hidden 32 --batch 2 --input 8 "
               "--weight-scale 40 --budget 24KiB --host-budget 1KiB --quick --steps 5 ");
  ASSERT_EQ(found["series"]["largest"].size(), 5U);
  const json& remote = found["series"]["largest"][2];
  EXPECT_EQ(remote["strategy"], "single_remote");
  EXPECT_LT(remote["most"], 128);
}

TEST(DeviceDouble, FailsWhereNothingFits) {
  const Outcome tight = command("bench double", "--device cuda --quick --budget 1KiB");
  EXPECT_EQ(tight.code, kDoesNotFit);
  EXPECT_THAT(tight.err, HasSubstr("has no room for one time step in 1 KiB"));
}

TEST(DeviceGruslys, RunsInPartsOfPlainMemory) {
  const json found = found_by("gruslys", kGruslys);
  const json &memory = found["series"]["memory"], &steps = found["series"]["steps"];
  ASSERT_EQ(memory.size(), 1U + 2);
  ASSERT_EQ(steps.size(), 1U + 1);
  for (const json& points : {memory, steps}) {
    for (const json& point : points) check(point);
  }
  EXPECT_EQ(memory[0]["strategy"], "store_all");
  EXPECT_EQ(memory[0]["measured"]["ratio"], 1);
  EXPECT_EQ(memory[0]["predicted"]["peak"]["fast"], found["plain"]);
  EXPECT_EQ(memory[1]["percent"], 20);
  EXPECT_EQ(memory[1]["budget"], found["plain"].get<std::int64_t>() / 5);
  EXPECT_GT(memory[1]["measured"]["ratio"], 1);
  EXPECT_EQ(memory[2]["predicted"]["ratio"], 1) << "all of the memory";
  EXPECT_EQ(steps[1]["time_steps"], 32);
  EXPECT_EQ(steps[1]["budget"], found["plain"].get<std::int64_t>() / 2);
}

TEST(DeviceGruslys, WritesTablesAndCsv) {
  expect_text("gruslys", kGruslys,
              {"lstm, 8 inputs, 32 units", "keep all of 64", "(a) Time against memory",
               "(b) Seconds of a time step", "20 %", "no limit", "the same bits as plain's"});
  expect_csv("gruslys", kGruslys, 3 + 2);
}

// What is left of the device has room for parts of plain's memory, not for all of it.
TEST(DeviceGruslys, GoesOnWhereTheDeviceHasNoRoom) {
  const DeviceMemory taken(cuda_free_bytes() - kLeftBytes);
  const json found = found_by("gruslys", kGruslys);
  const json& memory = found["series"]["memory"];
  ASSERT_EQ(memory.size(), 1U + 2);
  EXPECT_EQ(memory[0]["fits"], false);
  EXPECT_EQ(memory[0]["too_large"], true);
  EXPECT_GT(found["plain"], memory[1]["budget"]) << "known without a run";
  EXPECT_GT(found["parameters"], 4 * 32 * 32);
  const json& part = memory[1];
  ASSERT_EQ(part["fits"], true) << part;
  EXPECT_GT(part["measured"]["seconds"], 0);
  EXPECT_EQ(part["measured"]["ratio"], nullptr) << "there is no plain to compare with";
  EXPECT_EQ(part["same_gradient"], nullptr);
  expect_text("gruslys", kGruslys,
              {"more than the device has", "of them: no room on the device for plain's", "20 %"});
  expect_csv("gruslys", kGruslys, 3 + 2);
}

TEST(DeviceAsync, MovesStatesBehindTheComputation) {
  const json found = found_by("async", kAsync);
  const json &steps = found["series"]["steps"], &chunk = found["series"]["chunk"];
  ASSERT_EQ(steps.size(), 2U * 5);
  ASSERT_EQ(chunk.size(), 2U);
  for (const json& points : {steps, chunk}) {
    for (const json& point : points) check(point);
  }
  const char* const order[] = {"store_all", "async", "single_local", "revolve", "auto"};
  for (std::size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(steps[i]["strategy"], order[i % 5]);
    EXPECT_EQ(steps[i]["time_steps"], i < 5 ? 32 : 64);
  }
  EXPECT_GT(steps[6]["measured"]["moved"]["host"]["written"], 0);
  EXPECT_EQ(steps[7]["chunk"], steps[6]["chunk"]);
  EXPECT_EQ(steps[7]["measured"]["moved"], json::object()) << "all on the device";
  EXPECT_EQ(steps[8]["measured"]["moved"], json::object()) << "revolve has the device alone";
  EXPECT_EQ(chunk[0]["chunk"], 2);
  EXPECT_EQ(chunk[1]["chunk"], 4);
}

TEST(DeviceAsync, WritesTablesAndCsv) {
  expect_text("async", kAsync,
              {"(a) Against the number of time steps", "(b) async against the chunk, over 64",
               "revolve", "single_local", "the same bits as plain's"});
  expect_csv("async", kAsync, 2 * 5 + 2);
}

TEST(DeviceCommands, DrawTheirResults) {
  const TemporaryFolder folder;
  for (const auto& [name, words, chart] :
       {std::tuple{"async", kAsync, "Time of a time step of async against the chunk"},
        {"gruslys", kGruslys, "Time against memory"},
        {"double", kDouble, "Time against length"}}) {
    const std::string page = folder.path() + "/" + name + ".html";
    const Outcome outcome =
        command(std::string("bench ") + name, words + std::string("--json --view ") + page);
    ASSERT_EQ(outcome.code, kDone) << outcome.err;
    EXPECT_EQ(outcome.out.front(), '{');
    std::ifstream file(page);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    for (const char* word : {" on a device played by the host</title>", chart, "All runs"}) {
      EXPECT_THAT(text, HasSubstr(word)) << name;
    }
  }
}

TEST(DeviceCommands, SayWhatIsWrong) {
  const Outcome far = command("bench double", "--device cuda:1 --quick");
  EXPECT_EQ(far.code, kBadUsage);
  EXPECT_THAT(far.err, HasSubstr("--device cuda:1: there is no such device; the last is cuda:0"));
  const Outcome number = command("bench gruslys", "--device cuda --quick --number f64");
  EXPECT_EQ(number.code, kBadUsage);
  EXPECT_THAT(number.err, HasSubstr("must be bf16, f16, tf32 or f32"));
}

}  // namespace
}  // namespace ebb::test::device_commands_test
