// SPDX-License-Identifier: Apache-2.0
#include "ebb/experiments/double_bench.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "ebb/core/error.h"
#include "ebb/experiments/bench_net.h"
#include "ebb/plan/strategies.h"
#include "ebb/run/profile.h"
#include "ebb/run/sizes.h"

namespace ebb {
namespace {

constexpr double kMostWeights = 2e7;  // of nets that are made to learn their sizes

// What tells nets apart.
struct NetKey {
  std::int64_t time_steps, hidden;
  double rate;
};

class DoubleBench {
 public:
  explicit DoubleBench(const DoubleSetup& setup) : setup_(setup) {}

  DoubleResults run() {
    for (const RealTier& tier : setup_.tiers) arrange(tier);
    return std::move(results_);
  }

 private:
  // Room is for all of one arrangement's stages.
  void tell(const std::string& what, double share = 0) {
    check_stop(setup_.stop);
    constexpr double stages = 6;
    const double all = stages * static_cast<double>(setup_.tiers.size());
    if (setup_.progress) setup_.progress(tier_.name + ": " + what, (stage_ + share) / all);
  }

  std::unique_ptr<BenchNet> make(const NetKey& key) const {
    NetworkOptions options;
    options.time_steps = key.time_steps;
    options.batch = setup_.batch;
    options.chunk = setup_.chunk;
    options.threads = setup_.threads;
    options.input_spikes = true;
    options.layers = {{.cell = "lif",
                       .input = setup_.input,
                       .hidden = key.hidden,
                       .recurrent_density = setup_.density,
                       .weight_scale = setup_.weight_scale,
                       .hard_reset = true,
                       .gradient_threshold = kSecondThreshold},
                      {.cell = "leaky", .hidden = setup_.output}};
    return std::make_unique<BenchNet>(options, key.rate);
  }

  // Measured once for each net.
  const Chain& costs(BenchNet& net, const NetKey& key) {
    const std::pair<std::int64_t, double> kind(key.hidden, key.rate);
    auto known = costs_.find(kind);
    if (known == costs_.end()) {
      Chain chain =
          quickest_chain(net.net(), true, setup_.repeat, setup_.profile_seconds, setup_.stop);
      known = costs_.emplace(kind, std::move(chain)).first;
    }
    return known->second;
  }

  std::int64_t steps_of(std::int64_t time_steps) const {
    return (time_steps + setup_.chunk - 1) / setup_.chunk;
  }
  PlanOptions asked(const std::string& strategy) const {
    PlanOptions options;
    options.strategy = strategy;
    options.budget = setup_.budget;
    return options;
  }
  Trial trial_of(const std::string& strategy, bool sync = false) const {
    return {.strategy = strategy, .budget = setup_.budget, .sync = sync};
  }

  void arrange(const RealTier& tier) {
    tier_ = tier.tier;
    now_ = {};
    tell("measuring the net and the tier");
    const auto net = make({setup_.chunk, setup_.hidden, setup_.rate});
    const Chain& measured = costs(*net, {setup_.chunk, setup_.hidden, setup_.rate});
    const StepCost& step = measured.at(0);
    ProfileOptions options;
    options.tier_seconds = setup_.profile_seconds;
    now_.platform.tiers = {profile_tier(tier_, step.tape, options)};
    now_.platform.copy_rate = profile_copies(step.state, options);
    now_.platform.fast = setup_.budget;
    if (results_.plain_steps == 0) set_plain(*net, measured);
    ++stage_;
    measure_longest();
    measure_lengths();
    measure_largest();
    measure_activity();
    scale_bandwidth();
    results_.arrangements.push_back(std::move(now_));
  }

  void set_plain(BenchNet& net, const Chain& measured) {
    const std::int64_t steps =
        largest_steps(measured.at(0), measured.call(), now_.platform, asked("store_all"));
    if (steps < 1) {
      fail(ErrorCode::infeasible_budget, "plain backpropagation has no room for one step in ",
           format_bytes(setup_.budget), "; give a larger budget or a smaller hidden layer");
    }
    results_.plain_steps = std::min(setup_.steps.value_or(kUnlimited), steps * setup_.chunk);
    results_.parameters = net.parameters();
    results_.chain =
        Chain::uniform(steps_of(results_.plain_steps), measured.at(0), measured.call());
  }

  // Runs points of one net in turn, beside plain without a limit.
  void measure(const NetKey& key, std::vector<DoublePoint>& points) {
    const auto net = make(key);
    const TrialRules rules = {.costs = costs(*net, key),
                              .platform = now_.platform,
                              .tiers = {tier_},
                              .repeat = setup_.repeat,
                              .stop = setup_.stop};
    std::vector<Trial> trials = {{.strategy = "store_all"}};
    for (const DoublePoint& point : points) trials.push_back(point.trial);
    run_trials(net->net(), rules, trials);
    const double plain = trials[0].measured.seconds / static_cast<double>(key.time_steps);
    for (std::size_t i = 0; i < points.size(); ++i) {
      DoublePoint& point = points[i];
      point.time_steps = key.time_steps;
      point.hidden = key.hidden;
      point.rate = key.rate;
      point.parameters = net->parameters();
      point.activity = net->net().activity();
      point.plain_seconds = plain;
      point.trial = std::move(trials[i + 1]);
    }
  }

  std::int64_t far() const { return setup_.long_factor * results_.plain_steps; }

  void measure_longest() {
    const StepCost& step = results_.chain.at(0);
    // What local memory allows, whatever room there is beside it.
    Platform ample = now_.platform;
    ample.tiers[0].capacity = kUnlimited;
    // Points of one length are measured together.
    std::map<std::int64_t, std::vector<DoublePoint>> lengths;
    std::vector<std::pair<std::int64_t, std::size_t>> places;
    for (const std::string& strategy : double_strategies()) {
      tell("longest sequence, " + strategy);
      const std::int64_t steps = largest_steps(step, results_.chain.call(), ample, asked(strategy));
      DoublePoint point;
      point.most = steps == kUnlimited ? kUnlimited : steps * setup_.chunk;
      const std::int64_t length =
          strategy == "store_all" ? results_.plain_steps : std::min(point.most, far());
      if (length < 1) continue;
      for (const bool sync : {false, true}) {
        point.trial = trial_of(strategy, sync);
        places.emplace_back(length, lengths[length].size());
        lengths[length].push_back(point);
      }
    }
    for (auto& [length, points] : lengths) measure({length, setup_.hidden, setup_.rate}, points);
    for (const auto& [length, i] : places) now_.longest.push_back(lengths[length][i]);
    if (results_.activity == 0) results_.activity = now_.longest.back().activity;
    ++stage_;
  }

  void measure_lengths() {
    for (const std::int64_t factor : setup_.longer) {
      tell(std::to_string(factor) + " times as long");
      std::vector<DoublePoint> points;
      for (const char* strategy : {"single_remote", "double", "auto"}) {
        points.emplace_back().trial = trial_of(strategy);
      }
      measure({factor * results_.plain_steps, setup_.hidden, setup_.rate}, points);
      for (DoublePoint& point : points) now_.by_length.push_back(std::move(point));
    }
    find_furthest();
    ++stage_;
  }

  // In steps of 4: what a plan costs does not grow evenly with the length.
  void find_furthest() {
    for (std::int64_t factor = 1; factor <= setup_.most_searched; factor *= 4) {
      tell("planning " + std::to_string(factor) + " times as long");
      now_.searched = factor;
      const auto ratio = ratio_of(now_.platform, "auto", factor);
      if (!ratio || *ratio > kMarginal) return;
      now_.furthest = factor;
    }
  }

  // Predicted, at that many times the time steps of plain.
  std::optional<double> ratio_of(const Platform& platform, const std::string& strategy,
                                 std::int64_t factor) const {
    const Chain chain = Chain::uniform(steps_of(factor * results_.plain_steps),
                                       results_.chain.at(0), results_.chain.call());
    const auto plain = predict(chain, platform, {.strategy = "store_all"});
    const auto found = predict(chain, platform, trial_of(strategy));
    if (!found) return std::nullopt;
    return found->seconds / plain.value().seconds;
  }

  // Sizes alone: nets are made, and forgotten without being run.
  const Chain& sizes(std::int64_t hidden) {
    auto known = sizes_.find(hidden);
    if (known == sizes_.end()) {
      const auto net = make({results_.plain_steps, hidden, setup_.rate});
      Chain chain = chain_of(net->net(), true, net->net().steps(), nullptr);
      known = sizes_.emplace(hidden, std::move(chain)).first;
    }
    return known->second;
  }
  bool fits(const std::string& strategy, std::int64_t hidden) {
    tell("largest net, " + strategy + " with " + std::to_string(hidden) + " units");
    const auto least = least_budget(sizes(hidden), now_.platform, asked(strategy));
    return least && *least <= setup_.budget;
  }
  bool is_small(std::int64_t hidden) const {
    const auto h = static_cast<double>(hidden);
    return h * h * setup_.density + h * static_cast<double>(setup_.input) < kMostWeights;
  }

  // To one part in 50 and never beyond nets of kMostWeights. Doubling first: nets much larger than
  // the answer take long to make.
  std::int64_t largest_net(const std::string& strategy) {
    if (!fits(strategy, setup_.hidden)) return 0;
    std::int64_t low = setup_.hidden, high = 2 * low;
    while (is_small(high) && fits(strategy, high)) {
      low = high;
      high *= 2;
    }
    while (high - low > std::max<std::int64_t>(1, low / 50)) {
      const std::int64_t middle = low + (high - low) / 2;
      (is_small(middle) && fits(strategy, middle) ? low : high) = middle;
    }
    return low;
  }

  void measure_largest() {
    std::map<std::int64_t, std::vector<DoublePoint>> sizes;
    std::vector<std::pair<std::int64_t, std::size_t>> places;
    for (const std::string& strategy : double_strategies()) {
      DoublePoint point;
      point.most = largest_net(strategy);
      if (point.most < 1) continue;
      point.trial = trial_of(strategy);
      const std::int64_t hidden = strategy == "store_all"
                                      ? setup_.hidden
                                      : std::min(point.most, setup_.large_factor * setup_.hidden);
      places.emplace_back(hidden, sizes[hidden].size());
      sizes[hidden].push_back(point);
    }
    for (auto& [hidden, points] : sizes) {
      tell(std::to_string(hidden) + " units");
      measure({results_.plain_steps, hidden, setup_.rate}, points);
    }
    for (const auto& [hidden, i] : places) now_.largest.push_back(sizes[hidden][i]);
    ++stage_;
  }

  void measure_activity() {
    for (const std::int64_t percent : setup_.rates) {
      tell("input rate " + std::to_string(percent) + " %");
      std::vector<DoublePoint> points;
      for (const char* strategy : {"double", "auto"}) {
        points.emplace_back().trial = trial_of(strategy);
      }
      measure({far(), setup_.hidden, static_cast<double>(percent) / 100}, points);
      for (DoublePoint& point : points) now_.by_activity.push_back(std::move(point));
    }
    ++stage_;
  }

  void scale_bandwidth() {
    for (const double factor : {1.0 / 16, 1.0 / 4, 1.0, 4.0, 16.0}) {
      tell("bandwidths");
      Platform platform = now_.platform;
      platform.tiers[0].write_rate *= factor;
      platform.tiers[0].read_rate *= factor;
      BandwidthPoint& point = now_.by_bandwidth.emplace_back();
      point.factor = factor;
      for (const char* strategy : {"single_remote", "double", "auto"}) {
        point.ratios.emplace_back(strategy, ratio_of(platform, strategy, setup_.long_factor));
      }
    }
    ++stage_;
  }

  const DoubleSetup& setup_;
  DoubleResults results_;
  SlowTier tier_;          // of the arrangement under way
  DoubleArrangement now_;  // the arrangement under way
  double stage_ = 0;
  std::map<std::pair<std::int64_t, double>, Chain> costs_;  // by units and rate
  std::map<std::int64_t, Chain> sizes_;                     // by units
};

}  // namespace

double DoubleResults::paper_ratio() const {
  const StepCost& step = chain.at(0);
  return 1 + 2 * step.forward / (step.record + step.backward);
}

std::vector<std::string> double_strategies() {
  return {"store_all", "single_local", "single_remote", "double", "auto"};
}

DoubleResults run_double_bench(const DoubleSetup& setup) { return DoubleBench(setup).run(); }

}  // namespace ebb
