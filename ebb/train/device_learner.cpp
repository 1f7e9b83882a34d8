// SPDX-License-Identifier: Apache-2.0
#include "ebb/train/device_learner.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <sstream>
#include <utility>

#include "ebb/core/at.h"
#include "ebb/core/bits.h"
#include "ebb/core/budget_words.h"
#include "ebb/core/error.h"
#include "ebb/device/cuda_training.h"
#include "ebb/device/device_memory.h"
#include "ebb/train/batch_run.h"
#include "ebb/train/batch_targets.h"
#include "ebb/train/device_optimiser.h"
#include "ebb/train/training_device.h"

namespace ebb {
namespace {

constexpr auto kFloat = static_cast<Bytes>(sizeof(float));
constexpr Bytes kScoreBytes = Bytes{3} * kSums * static_cast<Bytes>(sizeof(double));

void refuse(const char* what) {
  throw Error(ErrorCode::invalid_argument, std::string(what) + ", which a GPU does not run", {},
              "leave it out, or train on the cpu");
}

// Beyond the end of a sequence a GPU runs on. An adlif's current and membrane die away there for any time constants if `a` is 0 to 1.
bool may_overflow(const LayerOptions& layer) {
  if (layer.cell == "rnn_relu") return true;
  if (layer.cell != "adlif") return false;
  return layer.train_tau || (layer.a && (*layer.a < 0 || *layer.a > 1));
}

void check(const LearnerSetup& setup, const Batch& sample) {
  const TrainOptions& options = setup.options;
  if (may_overflow(options.layer) && !sample.lengths.empty()) {
    const bool relu = options.layer.cell == "rnn_relu";
    throw Error(ErrorCode::invalid_argument,
                std::string("the cell is ") +
                    (relu ? "rnn_relu" : "adlif, whose `a` learns or is not within 0 to 1,") +
                    " and sequences have different lengths; a GPU runs on beyond their ends, where "
                    "its states may overflow",
                {}, "take another cell, or train on the cpu");
  }
  if (options.dropout != 0) refuse("dropout is set");
  if (options.pipelined) refuse("pipelined is set");
  if (!setup.tiers.empty()) {
    throw Error(ErrorCode::invalid_argument,
                "slow tiers are for training on the cpu; a GPU keeps states in the host's memory",
                {}, "give host_budget instead");
  }
}

// The word for it that a DeviceNetwork has: products of "f32" keep 21 bits of a float.
std::string number_of(const std::string& dtype) { return dtype == "float" ? "f32" : dtype; }

CudaNumber number_type(const std::string& number) {
  if (number == "bf16") return CudaNumber::bf16;
  return number == "f16" ? CudaNumber::f16 : CudaNumber::f32;
}

NetworkOptions on_host(const LearnerSetup& setup) {
  return network_of(setup.options, setup.shape, setup.rank, setup.ranks);
}

DeviceNetworkOptions on_device(const LearnerSetup& setup, const Batch& sample) {
  check(setup, sample);
  const NetworkOptions net = on_host(setup);
  DeviceNetworkOptions wanted;
  wanted.time_steps = net.time_steps;
  wanted.batch = net.batch;
  wanted.layers = net.layers;
  wanted.chunk = net.chunk > 0 ? net.chunk : setup.options.device_chunk;
  wanted.seed = net.seed;
  wanted.number = number_of(setup.options.dtype);
  wanted.strategy = truncation(setup.options) > 0 ? "auto" : setup.options.strategy;
  wanted.makes_inputs = true;
  return wanted;
}

// Not in the chunk that a checkpoint may have kept: shares of what that takes mean the same when a run goes on.
DevicePlan that_keeps_all(DeviceNetworkOptions options, std::int64_t chunk) {
  options.chunk = chunk;
  options.strategy = "store_all";
  options.budget = kUnlimited;
  options.host_budget = 0;
  return device_plan(options);
}

// Current until it goes.
class CurrentDevice {
 public:
  // Processes of one machine share its devices.
  CurrentDevice(const TrainingDevice& device, int local_rank) {
    const std::string missing = cuda_missing();
    if (!missing.empty()) {
      throw Error(ErrorCode::unavailable, "the net cannot be trained on a GPU: " + missing, {},
                  "give device cpu to train without one");
    }
    const int count = cuda_device_count();
    if (device.index >= count) {
      fail(ErrorCode::unavailable, "device is cuda:", device.index, ", but there are ", count,
           " CUDA devices, numbered from 0");
    }
    before_ = cuda_device();
    index_ = device.index >= 0 ? device.index : local_rank % count;
    set_cuda_device(index_);
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  ~CurrentDevice() {
    try {
      set_cuda_device(before_);
      // NOLINTNEXTLINE(bugprone-empty-catch): the device that failed said so before
    } catch (const Error&) {
    }
  }
  int index() const { return index_; }

 private:
  int before_ = 0, index_ = 0;
};

// What gradients on the device are multiplied with, a power of two: those of a mean over many targets are smaller than half precision
// has numbers for.
double scaled_by(const std::string& number, double scale) {
  return number == "f16" ? std::exp2(std::floor(std::log2(1 / scale))) : 1;
}

// Whether gradients of several windows or processes become one.
bool adds_up(const LearnerSetup& setup, std::int64_t windows) {
  return windows > 1 || setup.ranks > 1;
}

// Of one batch, beside what the network has.
struct BatchBytes {
  BatchBytes(const TaskShape& shape, const DeviceNetworkOptions& net, std::int64_t windows) {
    const std::int64_t rows = net.time_steps * net.batch, all = windows * rows;
    inputs = shape.steps * net.batch *
             (shape.spikes ? 8 * words_of(shape.inputs) : kFloat * shape.inputs);
    targets = all * kFloat * (shape.classes ? 1 : shape.outputs);
    outputs = rows * shape.outputs * kFloat;
    losses = rows * kFloat;
  }
  Bytes sum() const { return inputs + targets + outputs + 2 * losses + kScoreBytes; }
  Bytes inputs = 0, targets = 0, outputs = 0, losses = 0;
};

}  // namespace

struct DeviceLearner::OnDevice {
  OnDevice(const LearnerSetup& setup, const DeviceNetworkOptions& wanted, std::int64_t windows)
      : current(parse_training_device(setup.options.device), setup.local_rank),
        network(wanted),
        optimiser(setup.options.optimiser, network.layout()) {
    const BatchBytes bytes(setup.shape, wanted, windows);
    inputs = DeviceMemory(bytes.inputs);
    targets = DeviceMemory(bytes.targets);
    outputs = DeviceMemory(bytes.outputs);
    losses = DeviceMemory(bytes.losses);
    right = DeviceMemory(bytes.losses);
    sums = DeviceMemory(kScoreBytes);
    if (windows > 1) {
      for (DeviceMemory& state : states) state = DeviceMemory(network.state_size() * kFloat);
    }
    if (adds_up(setup, windows)) gradient = DeviceMemory(parameters() * kFloat);
  }

  static float* floats(const DeviceMemory& memory) {
    return reinterpret_cast<float*>(memory.data());
  }
  std::int64_t parameters() const {
    return network.layout().back().offset + network.layout().back().size;
  }

  CurrentDevice current;
  DeviceNetwork network;
  DeviceOptimiser optimiser;
  DeviceMemory inputs, targets, outputs, losses, right, sums;
  std::array<DeviceMemory, 2> states;  // of several windows: before and after one of them
  DeviceMemory gradient;               // of several windows or processes, added up
  const float* whole = nullptr;        // the gradient as far as it is added up,
  double scaled = 1;                   // times this
  std::vector<std::int32_t> classes;   // what is uploaded as targets
  std::vector<float> numbers;
};

DeviceLearner::DeviceLearner(const LearnerSetup& setup, const Batch& sample)
    : setup_(setup),
      wanted_(on_device(setup, sample)),
      network_(on_host(setup)),
      optimiser_(setup.options.optimiser, network_.values().size()),
      everything_(that_keeps_all(wanted_, setup.options.chunk)) {
  const TrainOptions& options = setup_.options;
  const Bytes plain = everything_.plan.prediction.peak[0] * windows();
  wanted_.budget = budget_bytes(options, plain);
  wanted_.host_budget = host_budget_bytes(options, plain);
  try {
    plan_ = planned(wanted_.budget);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::infeasible_budget) throw;
    throw in_unit_of(options.budget, plain, error);
  }
  if (setup_.plans_only) {
    if (!cuda_missing().empty()) return;
    const CurrentDevice current(parse_training_device(options.device), setup_.local_rank);
    check_device_takes(wanted_);
    return;
  }
  device_ = std::make_unique<OnDevice>(setup_, wanted_, windows());
}

DeviceLearner::~DeviceLearner() = default;

std::int64_t DeviceLearner::windows() const {
  return (setup_.shape.steps + wanted_.time_steps - 1) / wanted_.time_steps;
}

DevicePlan DeviceLearner::planned(Bytes budget) const {
  DeviceNetworkOptions options = wanted_;
  options.budget = budget;
  return device_plan(options);
}

// Sequences that end before the last time step go on without targets: that changes no gradient, since states stay finite.
void DeviceLearner::run(const Batch& batch, double scale, bool learns,
                        const std::stop_token& stop) {
  OnDevice& own = *device_;
  own.scaled = learns ? scaled_by(wanted_.number, scale) : 1;
  const TaskShape& shape = setup_.shape;
  const std::int64_t samples = wanted_.batch, width = wanted_.time_steps;
  const std::int64_t rows = width * samples;
  const BatchTargets targets(shape, samples, batch);
  if (shape.classes) {
    own.classes.assign(at(windows() * rows), -1);
    targets.visit([&](std::int64_t t, std::int64_t b, std::size_t place) {
      own.classes[at(t * samples + b)] = batch.classes[place];
    });
    own.targets.upload(own.classes);
  } else {
    own.numbers.assign(at(windows() * rows * shape.outputs),
                       std::numeric_limits<float>::quiet_NaN());
    targets.visit([&](std::int64_t t, std::int64_t b, std::size_t place) {
      std::copy_n(batch.targets.begin() + static_cast<std::ptrdiff_t>(place) * shape.outputs,
                  shape.outputs, own.numbers.begin() + (t * samples + b) * shape.outputs);
    });
    own.targets.upload(own.numbers);
  }
  if (shape.spikes) {
    own.inputs.upload(batch.spikes);
  } else {
    own.inputs.upload(batch.values);
  }
  cuda_zero(own.sums.data(), kScoreBytes, nullptr);
  const bool several = windows() > 1;
  if (learns && several) cuda_zero(own.gradient.data(), own.gradient.size(), nullptr);
  if (learns) own.whole = several ? OnDevice::floats(own.gradient) : own.network.gradient();

  const CudaNumber number = number_type(wanted_.number);
  for (std::int64_t window = 0; window < windows(); ++window) {
    const auto inputs = [&, window](std::int64_t first, std::int64_t steps, void* x, void* stream) {
      if (stop.stop_requested()) fail(ErrorCode::cancelled, "training was stopped");
      const std::int64_t from = window * width + first;
      const std::int64_t there = std::clamp<std::int64_t>(shape.steps - from, 0, steps) * samples;
      const std::int64_t columns = shape.inputs;
      if (there < steps * samples)  // beyond the last time step, in the last of several windows
        cuda_zero(x, steps * samples * columns * bytes_of(number), stream);
      if (there == 0) return;
      if (shape.spikes) {
        const auto* const words = reinterpret_cast<const std::uint64_t*>(own.inputs.data());
        cuda_expand_bits(number, x, words + from * samples * words_of(columns), there, columns,
                         stream);
      } else {
        float* const values = OnDevice::floats(own.inputs) + from * samples * columns;
        cuda_convert({number, x, columns}, {CudaNumber::f32, values, columns}, there, columns,
                     stream);
      }
    };
    const auto even = static_cast<std::size_t>(window % 2);
    const float* const initial = window > 0 ? OnDevice::floats(own.states[even]) : nullptr;
    float* const final = several ? OnDevice::floats(own.states[1 - even]) : nullptr;
    own.network.forward_from(inputs, own.outputs.data(), initial, final);

    CudaLosses losses;
    losses.outputs = OnDevice::floats(own.outputs);
    losses.rows = rows;
    losses.columns = shape.outputs;
    losses.scale = static_cast<float>(scale * own.scaled);
    losses.gradient = learns ? OnDevice::floats(own.outputs) : nullptr;
    losses.losses = OnDevice::floats(own.losses);
    losses.right = OnDevice::floats(own.right);
    const std::byte* const wanted =
        own.targets.data() + window * rows * kFloat * (shape.classes ? 1 : shape.outputs);
    if (shape.classes) {
      cuda_cross_entropy(losses, reinterpret_cast<const std::int32_t*>(wanted), nullptr);
    } else {
      cuda_squared_error(losses, reinterpret_cast<const float*>(wanted), nullptr);
    }
    cuda_score_sums(reinterpret_cast<double*>(own.sums.data()), losses, nullptr);
    if (!learns) continue;
    own.network.backward(own.outputs.data());
    if (several) {
      cuda_add(CudaNumber::f32, own.gradient.data(), OnDevice::floats(own.gradient),
               own.network.gradient(), own.parameters(), nullptr);
    }
  }
}

void DeviceLearner::learn(const Batch& batch, double scale, std::uint64_t, std::stop_token stop) {
  run(batch, scale, true, stop);
}

Score DeviceLearner::score() {
  std::vector<double> sums(std::size_t{3} * kSums);
  device_->sums.download(sums);
  const auto sum = [&](std::ptrdiff_t k) {
    return std::accumulate(sums.begin() + k * kSums, sums.begin() + (k + 1) * kSums, 0.0);
  };
  return {sum(0), sum(1), sum(2)};
}

void DeviceLearner::sum_gradient(Ranks& ranks) {
  if (ranks.size() == 1) return;
  OnDevice& own = *device_;
  std::vector<float> gradient(at(own.parameters()));
  if (windows() > 1) {
    own.gradient.download(gradient);
  } else {
    own.network.copy_gradient(gradient);
  }
  ranks.sum(std::span<float>(gradient));
  own.gradient.upload(gradient);
  own.whole = OnDevice::floats(own.gradient);
}

double DeviceLearner::step(double rate) {
  return device_->optimiser.step(device_->network.values(), device_->whole, rate, device_->scaled);
}

Score DeviceLearner::test(const Batch& batch) {
  run(batch, 1, false, {});
  return score();
}

void DeviceLearner::fetch() {
  device_->network.copy_values(network_.values());
  device_->optimiser.fetch(optimiser_);
}

void DeviceLearner::restored() {
  if (!device_) return;
  device_->network.set_values(network_.values());
  device_->optimiser.take(optimiser_);
}

Report DeviceLearner::report() const { return device_->network.report(); }

TrainPlan DeviceLearner::plan() { return described(plan_, wanted_.budget); }

TrainPlan DeviceLearner::plan_within(double slowdown) {
  const double seconds = slowdown * everything_.plan.prediction.seconds;
  const auto fits = [&](Bytes budget) -> std::optional<DevicePlan> {
    try {
      DevicePlan found = planned(budget);
      if (found.plan.prediction.seconds <= seconds) return found;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::infeasible_budget) throw;
    }
    return {};
  };
  Bytes low = 0, high = everything_.plan.prediction.peak[0];
  std::optional<DevicePlan> best = fits(high);
  if (!best) {
    std::ostringstream text;
    text << "no budget makes strategy " << wanted_.strategy << " as fast as " << slowdown
         << " x keeping everything; with any memory it takes "
         << planned(kUnlimited).plan.prediction.seconds / everything_.plan.prediction.seconds
         << " x";
    throw Error(ErrorCode::infeasible_budget, text.str(), {},
                "allow more time, or take strategy auto");
  }
  while (high - low > high / 1000) {
    const Bytes middle = low + (high - low) / 2;
    if (std::optional<DevicePlan> found = fits(middle)) {
      best = std::move(found);
      high = middle;
    } else {
      low = middle;
    }
  }
  return described(*best, high);
}

TrainPlan DeviceLearner::described(const DevicePlan& chosen, Bytes budget) const {
  TrainPlan plan;
  plan.device = "cuda";
  if (device_) {
    plan.device += ":" + std::to_string(device_->current.index()) + ", " + cuda_device_name();
  }
  for (const NetworkParameter& own : network_.layout()) plan.parameters += own.size;
  plan.steps = (wanted_.time_steps + chosen.chunk - 1) / chosen.chunk;
  plan.chunk = chosen.chunk;
  plan.windows = windows();
  plan.strategy = chosen.plan.strategy;
  plan.prediction = chosen.plan.prediction;
  plan.peak = plan.prediction.peak.front();
  plan.planning = chosen.plan.tables;
  plan.plain = everything_.plan.prediction.peak[0] * windows();
  plan.plain_seconds = everything_.plan.prediction.seconds;
  plan.budget = budget;
  plan.beside = chosen.standing_bytes + BatchBytes(setup_.shape, wanted_, windows()).sum() +
                DeviceOptimiser::bytes(setup_.options.optimiser, plan.parameters);
  if (windows() > 1) plan.beside += 2 * chosen.state_size * kFloat;
  if (adds_up(setup_, windows())) plan.beside += plan.parameters * kFloat;
  if (wanted_.host_budget > 0) plan.tiers.push_back("host");
  return plan;
}

}  // namespace ebb
