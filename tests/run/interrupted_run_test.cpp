// SPDX-License-Identifier: Apache-2.0
// A Run that is stopped, by its Step or by its caller, works again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <memory>
#include <stdexcept>
#include <stop_token>
#include <thread>

#include "ebb/core/error.h"
#include "ebb/run/function_step.h"
#include "ebb/run/run.h"
#include "tests/conformance/walk.h"

namespace ebb::test::interrupted_run_test {
namespace {

using ::testing::HasSubstr;

class Throwing : public FunctionStep<double> {
 public:
  Throwing(std::int64_t steps, std::int64_t& fuse)
      : FunctionStep<double>(
            steps, 3,
            [&fuse](std::int64_t, In in, Out out) {
              if (fuse-- == 0) throw std::runtime_error("the user's own");
              for (std::size_t i = 0; i < 3; ++i) out[i] = 0.9 * in[i] + 0.1;
            },
            [&fuse](std::int64_t, In, In, Out adjoint) {
              if (fuse-- == 0) throw std::runtime_error("the user's own");
              for (double& a : adjoint) a *= 0.9;
            }) {}
};

TEST(Run, ExceptionsOfTheStepComeThroughAndLeaveItUsable) {
  std::int64_t fuse = -1;
  Throwing step(20, fuse);
  RunOptions options;
  options.chain = seconds_of(20);
  options.tiers = {memory_tier(1_MiB)};
  options.platform = speeds_of(options.tiers);
  options.strategy = "async";
  options.budget = 800;
  ebb::Run run(step, options);
  const std::vector<double> initial{1, 2, 3}, adjoint{1, 1, 1};
  std::vector<double> final(3), gradient(3);
  std::int64_t thrown = 0;
  for (std::int64_t at = 0; at < 80; ++at) {
    fuse = at;
    try {
      run.forward(initial, final);
      run.backward(adjoint, gradient);
    } catch (const std::runtime_error& error) {
      ASSERT_STREQ(error.what(), "the user's own");
      ++thrown;
    }
  }
  EXPECT_GT(thrown, 40);
  fuse = -1;
  run.forward(initial, final);
  run.backward(adjoint, gradient);
  EXPECT_NEAR(gradient[0], std::pow(0.9, 20), 1e-12);
}

TEST(Run, CancelsAndWorksAgain) {
  // On the heap: GCC 12 takes one on the stack for uninitialized.
  const auto stop = std::make_unique<std::stop_source>();
  std::atomic<bool> began = false;
  FunctionStep<double> step(
      100'000, 1,
      [&](std::int64_t i, auto in, auto out) {
        began = true;
        while (i == 1000 && !stop->stop_requested()) std::this_thread::yield();
        out[0] = in[0];
      },
      [](std::int64_t, auto, auto, auto) {});
  RunOptions options;
  options.chain = seconds_of(100'000);
  options.stop = stop->get_token();
  options.strategy = "revolve";
  options.budget = 2000;
  ebb::Run run(step, options);
  std::vector<double> x{1}, y(1);
  std::thread other([&] {
    while (!began) std::this_thread::yield();
    stop->request_stop();
  });
  try {
    run.forward(x, y);
    FAIL() << "it ran to the end";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::cancelled);
    EXPECT_THAT(error.what(), HasSubstr("cancelled after"));
  }
  other.join();
  // A token that was asked to stop stays so; with another one the run works again.
  EXPECT_THROW(run.forward(x, y), Error);
  const auto another = std::make_unique<std::stop_source>();
  run.set_stop(another->get_token());
  const auto small = small_step(50);
  RunOptions again = planned(*small);
  again.strategy = "revolve";
  again.budget = 1000;
  again.stop = stop->get_token();
  ebb::Run works(*small, again);
  EXPECT_THROW(results_of(works, *small), Error);
  works.set_stop({});
  EXPECT_TRUE(results_of(works, *small) == stored_all(*small));
}

// One cheap step first: the rest is still looked at in pieces of a fraction of a second.
TEST(Run, HearsOfCancellationThoughTheFirstStepsAreCheap) {
  const auto stop = std::make_unique<std::stop_source>();
  std::int64_t ran = 0;
  FunctionStep<double> step(
      5000, 1,
      [&](std::int64_t i, auto in, auto out) {
        if (i > 0) std::this_thread::sleep_for(std::chrono::microseconds(500));
        if (++ran == 100) stop->request_stop();
        out[0] = in[0];
      },
      [](std::int64_t, auto, auto, auto) {});
  RunOptions options;
  options.chain = seconds_of(5000);
  options.stop = stop->get_token();
  ebb::Run run(step, options);
  const std::vector<double> x{1};
  std::vector<double> y(1);
  EXPECT_THROW(run.forward(x, y), Error);
  EXPECT_LT(ran, 1000);
}

}  // namespace
}  // namespace ebb::test::interrupted_run_test
