// SPDX-License-Identifier: Apache-2.0
#include "ebb/experiments/device_trials.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "ebb/core/error.h"
#include "ebb/core/random.h"
#include "ebb/device/device_memory.h"
#include "ebb/experiments/as_prediction.h"
#include "ebb/experiments/device_inputs.h"

namespace ebb {
namespace {

constexpr std::uint64_t kGradientSeed = 2;

// A network with all that its runs need.
class Running {
 public:
  Running(const DeviceNetworkOptions& options, double rate)
      : net_(options),
        inputs_(options.batch, options.layers.front().input, options.number, rate),
        of_final_(net_.state_size() * static_cast<Bytes>(sizeof(float))) {
    const Random random(kGradientSeed, 0);
    std::vector<float> made(static_cast<std::size_t>(net_.state_size()));
    for (std::size_t i = 0; i < made.size(); ++i) {
      made[i] =
          static_cast<float>((2 * random.uniform(i) - 1) / static_cast<double>(options.batch));
    }
    of_final_.upload(made);
  }

  Report run() {
    net_.forward_from(inputs_.function(), nullptr);
    net_.backward(nullptr, nullptr, reinterpret_cast<const float*>(of_final_.data()));
    return net_.report();
  }

  const DeviceNetwork& net() const { return net_; }
  std::vector<float> gradient() const {
    const NetworkParameter& last = net_.layout().back();
    std::vector<float> found(static_cast<std::size_t>(last.offset + last.size));
    net_.copy_gradient(found);
    return found;
  }

 private:
  DeviceNetwork net_;
  RepeatedInputs inputs_;
  DeviceMemory of_final_;
};

bool same_bits(const std::vector<float>& one, const std::vector<float>& other) {
  return one.size() == other.size() &&
         std::memcmp(one.data(), other.data(), one.size() * sizeof(float)) == 0;
}

DeviceTrial keeping_everything(std::int64_t time_steps, std::int64_t hidden) {
  DeviceTrial trial;
  trial.time_steps = time_steps;
  trial.hidden = hidden;
  trial.trial.strategy = "store_all";
  return trial;
}

}  // namespace

DeviceNetworkOptions DeviceTrials::options_of(const DeviceTrial& asked) const {
  DeviceNetworkOptions options;
  options.time_steps = asked.time_steps;
  options.batch = net_.batch;
  options.layers = {net_.layer};
  options.layers.front().hidden = asked.hidden;
  options.number = net_.number;
  options.budget = asked.trial.budget;
  options.host_budget = asked.host_budget;
  options.chunk = asked.chunk;
  options.strategy = asked.trial.strategy;
  options.makes_inputs = true;
  return options;
}

std::optional<DevicePlan> DeviceTrials::planned(const DeviceTrial& asked) const {
  check_stop(stop_);
  try {
    return device_plan(options_of(asked));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::infeasible_budget) throw;
    return std::nullopt;
  }
}

bool DeviceTrials::runs(const DeviceTrial& asked) const {
  check_stop(stop_);
  try {
    const DeviceNetwork net(options_of(asked));
    return true;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::invalid_argument) throw;
    return false;
  }
}

void DeviceTrials::run(DeviceTrial& trial) {
  check_stop(stop_);
  std::vector<float> gradient;
  try {
    gradient = measure(trial);
  } catch (const Error& error) {
    trial.too_large = error.code() == ErrorCode::out_of_memory;
    if (!trial.too_large && error.code() != ErrorCode::infeasible_budget) throw;
    trial.trial.least_budget = error.least_budget();
    return;
  }
  trial.trial.fits = true;
  compare(trial, gradient);
}

std::vector<float> DeviceTrials::measure(DeviceTrial& trial) {
  Running running(options_of(trial), net_.rate);
  const Plan& plan = running.net().plan();
  trial.chunk = running.net().chunk();
  trial.trial.chosen = plan.strategy;
  trial.trial.parameters = plan.parameters;
  trial.trial.predicted = plan.prediction;
  running.run();
  trial.trial.slowest = 0;
  for (int k = 0; k < repeat_; ++k) {
    check_stop(stop_);
    const Report report = running.run();
    trial.pinned &= report.remarks.empty();
    trial.trial.slowest = std::max(trial.trial.slowest, report.measured.seconds);
    if (k == 0 || report.measured.seconds < trial.trial.measured.seconds)
      trial.trial.measured = as_prediction(report.measured);
  }
  std::vector<float> gradient = running.gradient();
  trial.parameters = static_cast<std::int64_t>(gradient.size());
  return gradient;
}

void DeviceTrials::compare(DeviceTrial& trial, const std::vector<float>& gradient) {
  try {
    trial.trial.same_gradient = same_bits(gradient, reference(trial));
    trial.compared = true;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::out_of_memory) throw;
  }
}

const std::vector<float>& DeviceTrials::reference(const DeviceTrial& like) {
  const auto same = [&](const DeviceTrial& other) {
    return other.time_steps == like.time_steps && other.hidden == like.hidden &&
           other.chunk == like.chunk;
  };
  if (reference_of_ && same(*reference_of_)) return reference_;
  DeviceTrial wanted = keeping_everything(like.time_steps, like.hidden);
  wanted.chunk = like.chunk;
  reference_of_.reset();
  Running running(options_of(wanted), net_.rate);
  running.run();
  reference_ = running.gradient();
  reference_of_ = std::move(wanted);
  return reference_;
}

DevicePlan DeviceTrials::plan_of_plain(std::int64_t time_steps, std::int64_t hidden) const {
  check_stop(stop_);
  return device_plan(options_of(keeping_everything(time_steps, hidden)));
}

const DeviceTrial& DeviceTrials::plain(std::int64_t time_steps, std::int64_t hidden) {
  const auto [found, is_new] = plain_.try_emplace({time_steps, hidden});
  if (!is_new) return found->second;
  DeviceTrial trial = keeping_everything(time_steps, hidden);
  try {
    run(trial);
  } catch (...) {
    plain_.erase(found);
    throw;
  }
  set_ratios(trial, trial);
  return found->second = std::move(trial);
}

void set_ratios(DeviceTrial& trial, const DeviceTrial& against) {
  if (!trial.trial.fits) return;
  const auto ratio = [&](const Prediction& own, const Prediction& other) {
    return against.trial.fits ? trial.per_step(own) / against.per_step(other)
                              : std::numeric_limits<double>::quiet_NaN();
  };
  trial.trial.predicted_ratio = ratio(trial.trial.predicted, against.trial.predicted);
  trial.trial.measured_ratio = ratio(trial.trial.measured, against.trial.measured);
}

}  // namespace ebb
