// SPDX-License-Identifier: Apache-2.0
#include "ebb/experiments/gruslys_bench.h"

#include <utility>

#include "ebb/core/error.h"
#include "ebb/experiments/bench_net.h"
#include "ebb/run/sizes.h"

namespace ebb {
namespace {

class GruslysBench {
 public:
  explicit GruslysBench(const GruslysSetup& setup) : setup_(setup) {}

  GruslysResults run() {
    work_ = setup_.steps;
    for (const std::int64_t length : setup_.lengths) work_ += length;
    {
      BenchNet net(options_of(setup_.steps, setup_.chunk));
      tell("measuring the step", 0);
      results_.chunk = net.net().chunk();
      results_.parameters = net.parameters();
      results_.plain = net.net().plain_bytes();
      results_.chain =
          quickest_chain(net.net(), false, setup_.repeat, setup_.profile_seconds, setup_.stop);
      results_.by_memory = measured(net.net(), memory_points());
    }
    for (const std::int64_t length : setup_.lengths) {
      // The same chunk, or the steps of plans would not be the same.
      BenchNet net(options_of(length, results_.chunk));
      for (GruslysPoint& point : measured(net.net(), length_points(length))) {
        results_.by_steps.push_back(std::move(point));
      }
    }
    return std::move(results_);
  }

 private:
  NetworkOptions options_of(std::int64_t time_steps, std::int64_t chunk) const {
    NetworkOptions options;
    options.time_steps = time_steps;
    options.batch = setup_.batch;
    options.layers = {{.cell = "lstm", .input = setup_.input, .hidden = setup_.hidden}};
    options.chunk = chunk;
    options.threads = setup_.threads;
    return options;
  }

  GruslysPoint point_of(std::int64_t length, const std::string& strategy, Bytes budget,
                        std::optional<std::int64_t> percent) const {
    return {length, percent, {.strategy = strategy, .budget = budget}};
  }
  GruslysPoint limited(std::int64_t length, std::int64_t percent) const {
    return point_of(length, "auto", results_.plain / 100 * percent, percent);
  }

  std::vector<GruslysPoint> memory_points() const {
    const std::int64_t steps = setup_.steps;
    std::vector<GruslysPoint> points = {point_of(steps, "store_all", kUnlimited, {})};
    for (const std::int64_t percent : setup_.memory) points.push_back(limited(steps, percent));
    points.push_back(point_of(steps, "sqrt", kUnlimited, {}));
    const auto chen = predict(results_.chain, {}, points.back().trial);
    points.push_back(point_of(steps, "auto", chen.value().peak[0], {}));
    return points;
  }

  std::vector<GruslysPoint> length_points(std::int64_t length) const {
    std::vector<GruslysPoint> points = {point_of(length, "store_all", kUnlimited, {})};
    for (const std::int64_t percent : setup_.budgets) points.push_back(limited(length, percent));
    points.push_back(point_of(length, "sqrt", kUnlimited, {}));
    return points;
  }

  std::vector<GruslysPoint> measured(Network<float>& net, std::vector<GruslysPoint> points) {
    const std::int64_t length = net.time_steps();
    const auto say = [this, length](double share) {
      tell(std::to_string(length) + " time steps", share * static_cast<double>(length));
    };
    say(0);
    std::vector<Trial> trials;
    for (GruslysPoint& point : points) trials.push_back(std::move(point.trial));
    TrialRules rules{.costs = results_.chain, .repeat = setup_.repeat, .stop = setup_.stop};
    rules.progress = say;
    run_trials(net, rules, trials);
    for (std::size_t i = 0; i < points.size(); ++i) points[i].trial = std::move(trials[i]);
    done_ += length;
    return points;
  }

  void tell(const std::string& what, double now) const {
    if (!setup_.progress) return;
    setup_.progress(what, (static_cast<double>(done_) + now) / static_cast<double>(work_));
  }

  const GruslysSetup& setup_;
  GruslysResults results_;
  std::int64_t work_ = 1, done_ = 0;  // time steps
};

}  // namespace

GruslysResults run_gruslys_bench(const GruslysSetup& setup) { return GruslysBench(setup).run(); }

}  // namespace ebb
