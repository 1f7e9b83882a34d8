// SPDX-License-Identifier: Apache-2.0
// Nothing allocates while a plan runs, but for the plan's own cursor and what the standard library
// takes for an exception.
#include <gtest/gtest.h>

#include <functional>

#include "ebb/run/function_step.h"
#include "ebb/run/run.h"
#include "tests/conformance/walk.h"
#include "tests/counted_new.h"

namespace ebb::test::allocation_test {
namespace {

std::int64_t count(const std::function<void()>& work) {
  const long before = allocations;
  work();
  return allocations - before;
}

TEST(Allocation, NothingButThePlansCursor) {
  const TemporaryFolder folder;
  for (const std::string strategy : {"revolve", "async", "disk_revolve", "store_all", "msm"}) {
    std::vector<std::int64_t> beside_cursor;
    for (const std::int64_t steps : {500, 5000}) {
      SCOPED_TRACE(strategy + ", " + std::to_string(steps));
      FunctionStep<double> step(
          steps, 4,
          [](std::int64_t, auto in, auto out) { std::copy(in.begin(), in.end(), out.begin()); },
          [](std::int64_t, auto, auto, auto) {});
      RunOptions options;
      options.chain = seconds_of(steps);
      options.tiers = {file_tier(folder.path(), 16_MiB)};
      options.platform = speeds_of(options.tiers);
      options.strategy = strategy;
      options.replan_factor = 0;
      if (strategy != "store_all") options.budget = 4096;
      ebb::Run run(step, options);
      const std::vector<double> state(4);
      std::vector<double> out(4);
      const auto iterate = [&] {
        run.forward(state, out);
        run.backward(state, out);
      };
      iterate();
      const std::int64_t cursor = count([&] {
        const auto actions = run.plan().cursor();
        Action action = Advance{0, 0};
        while (actions->next(action)) continue;
      });
      beside_cursor.push_back(count(iterate) - cursor);
    }
    // The measured figures and their lists, whatever the length.
    EXPECT_LT(beside_cursor[0], 20);
    EXPECT_EQ(beside_cursor[1], beside_cursor[0]) << strategy;
  }
}

}  // namespace
}  // namespace ebb::test::allocation_test
