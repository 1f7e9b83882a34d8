// SPDX-License-Identifier: Apache-2.0
// Nets of experiments, and runs of them side by side.
#include "ebb/experiments/trials.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <stop_token>

#include "ebb/core/error.h"
#include "ebb/experiments/bench_net.h"
#include "ebb/experiments/trials_text.h"

namespace ebb::test::trials_test {
namespace {

// As `ebb bench double` makes them, but for the sizes.
NetworkOptions spiking(std::int64_t time_steps) {
  NetworkOptions options;
  options.time_steps = time_steps;
  options.batch = 2;
  options.chunk = 4;
  options.threads = 1;
  options.input_spikes = true;
  options.layers = {{.cell = "lif",
                     .input = 64,
                     .hidden = 128,
                     .recurrent_density = 0.1,
                     .weight_scale = 20,
                     .hard_reset = true,
                     .gradient_threshold = 0.9},
                    {.cell = "leaky", .hidden = 20}};
  return options;
}

TEST(Trials, CompareGradientsThatAreNumbers) {
  BenchNet net(spiking(2000), 0.05);
  const Chain costs = quickest_chain(net.net(), false, 1, 0.01, {});
  std::vector<Trial> trials = {{.strategy = "store_all"},
                               {.strategy = "auto", .budget = net.net().plain_bytes() / 5},
                               {.strategy = "revolve", .budget = 1}};
  run_trials(net.net(), {.costs = costs, .repeat = 2}, trials);
  EXPECT_GT(net.net().activity(), 0.001);
  EXPECT_LT(net.net().activity(), 0.2);
  const std::span<const float> gradient = net.net().gradient();
  EXPECT_TRUE(std::ranges::all_of(gradient, [](float g) { return std::isfinite(g); }));
  EXPECT_TRUE(std::ranges::any_of(gradient, [](float g) { return g != 0; }));
  EXPECT_TRUE(trials[0].fits && trials[0].same_gradient);
  EXPECT_TRUE(trials[1].fits && trials[1].same_gradient);
  EXPECT_GT(trials[1].measured.forwards, trials[0].measured.forwards);
  EXPECT_GT(trials[1].predicted_ratio, 1);
  EXPECT_GE(trials[1].slowest, trials[1].measured.seconds);
  EXPECT_GE(trials[1].spread(), 0);
  EXPECT_GT(trials[1].least_ratio, 0);
  EXPECT_LE(trials[1].least_ratio, trials[1].greatest_ratio);
  EXPECT_EQ(trials[0].greatest_ratio, 1);
  EXPECT_FALSE(trials[2].fits);
  EXPECT_GT(trials[2].least_budget.value_or(0), 1);
}

TEST(Trials, SeeWrongGradients) {
  NetworkOptions options = spiking(400);
  options.seed = 2;  // or memory that other tests left might hold the very states
  BenchNet net(options, 0.05);
  const Chain costs = quickest_chain(net.net(), true, 1, 0.01, {});
  Platform platform;
  platform.tiers = {{.name = "null"}};
  std::vector<Trial> trials = {
      {.strategy = "store_all"},
      {.strategy = "single_remote", .budget = net.net().plain_bytes() / 5, .sync = true}};
  // Nothing that goes to a null tier comes back.
  run_trials(net.net(), {.costs = costs, .platform = platform, .tiers = {null_tier()}}, trials);
  ASSERT_TRUE(trials[1].fits);
  EXPECT_GT(trials[1].measured.moved.at(0).read, 0);
  EXPECT_FALSE(trials[1].same_gradient);
  EXPECT_FALSE(trials[1].exact);
}

TEST(Trials, EndWithAStop) {
  BenchNet net(spiking(100), 0.05);
  std::stop_source source;
  source.request_stop();
  const Chain costs = Chain::uniform(1, {});
  std::vector<Trial> trials = {{.strategy = "store_all"}};
  try {
    run_trials(net.net(), {.costs = costs, .stop = source.get_token()}, trials);
    FAIL() << "ran";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::cancelled);
  }
}

TEST(Trials, RatiosInThousandths) {
  EXPECT_EQ(format_ratio(1), "1.000x");
  EXPECT_EQ(format_ratio(1.3166), "1.317x");
  EXPECT_EQ(format_ratio(12.04), "12.040x");
  EXPECT_EQ(format_ratio(std::nan("")), "-");
}

TEST(Trials, AreUndecidedWhereSomeRunsMeetTheGoal) {
  Trial trial;
  trial.measured.seconds = 2;
  trial.slowest = 2.2;
  trial.measured_ratio = 1.4;
  trial.least_ratio = 1.25;
  trial.greatest_ratio = 1.6;
  EXPECT_EQ(format_spread(trial.spread()), "10 %");
  EXPECT_EQ(format_spread(12), "> 999 %");
  EXPECT_TRUE(is_undecided(trial, 1.3)) << "met by one of the runs";
  EXPECT_FALSE(is_undecided(trial, 1.2)) << "missed by all of them";
  EXPECT_FALSE(is_undecided(trial, 1.4)) << "met";
  EXPECT_EQ(missed_words(trial, 1.4), "");
  EXPECT_EQ(missed_words(trial, 1.2), " (> 1.200x)");
}

}  // namespace
}  // namespace ebb::test::trials_test
