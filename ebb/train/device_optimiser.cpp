// SPDX-License-Identifier: Apache-2.0
#include "ebb/train/device_optimiser.h"

#include <cmath>
#include <cstring>
#include <numeric>

#include "ebb/core/at.h"
#include "ebb/device/cuda_training.h"

namespace ebb {
namespace {

constexpr Bytes kSumsBytes = kSums * static_cast<Bytes>(sizeof(double));
constexpr auto kNumber = static_cast<Bytes>(sizeof(float));

// Arrays as long as the parameters.
int moments(const OptimiserOptions& options) {
  if (options.kind != OptimiserKind::sgd) return 2;
  return options.momentum != 0 ? 1 : 0;
}

float* floats(const DeviceMemory& memory, std::int64_t from) {
  return memory.size() == 0 ? nullptr : reinterpret_cast<float*>(memory.data()) + from;
}

}  // namespace

DeviceOptimiser::DeviceOptimiser(const OptimiserOptions& options,
                                 std::span<const NetworkParameter> layout)
    : options_(options), sums_(kSumsBytes) {
  for (const NetworkParameter& own : layout) {
    parameters_ = own.offset + own.size;
    if (!own.learns || own.size == 0) continue;
    const bool goes_on =
        !learning_.empty() && learning_.back().offset + learning_.back().size == own.offset;
    if (goes_on) {
      learning_.back().size += own.size;
    } else {
      learning_.push_back({own.offset, own.size});
    }
  }
  if (moments(options) > 0) first_ = DeviceMemory(parameters_ * kNumber);
  if (moments(options) > 1) second_ = DeviceMemory(parameters_ * kNumber);
}

Bytes DeviceOptimiser::bytes(const OptimiserOptions& options, std::int64_t parameters) {
  return moments(options) * parameters * kNumber + kSumsBytes;
}

double DeviceOptimiser::step(float* values, const float* gradient, double rate, double scaled) {
  auto* const parts = reinterpret_cast<double*>(sums_.data());
  cuda_square_sums(parts, gradient, parameters_, nullptr);
  std::vector<double> sums(kSums);
  sums_.download(sums);
  const double norm = std::sqrt(std::accumulate(sums.begin(), sums.end(), 0.0)) / scaled;
  if (!std::isfinite(norm)) return norm;
  StepNumbers<float> with = step_numbers<float>(options_, ++steps_, norm, rate);
  with.scale /= static_cast<float>(scaled);
  for (const Part& part : learning_) {
    float* const own = values + part.offset;
    const float* const of = gradient + part.offset;
    float *const first = floats(first_, part.offset), *const second = floats(second_, part.offset);
    if (options_.kind == OptimiserKind::sgd) {
      cuda_sgd({with.scale, with.decay, with.momentum, with.rate}, own, of, first, part.size,
               nullptr);
    } else {
      cuda_adam({with.scale, with.shrink, with.decay, with.beta1, with.beta2, with.rest1,
                 with.rest2, with.epsilon, with.rate, with.root},
                own, of, first, second, part.size, nullptr);
    }
  }
  return norm;
}

const DeviceMemory* DeviceOptimiser::moment(const TensorView& tensor) const {
  if (tensor.name == "step") return nullptr;
  return tensor.name == "exp_avg_sq" ? &second_ : &first_;
}

void DeviceOptimiser::fetch(Optimiser<float>& to) const {
  std::vector<TensorView> state = to.state();
  std::vector<std::vector<float>> moments(state.size());
  for (std::size_t k = 0; k < state.size(); ++k) {
    const DeviceMemory* const memory = moment(state[k]);
    if (memory == nullptr) {
      state[k] = view_tensor("step", {}, std::span<const std::int64_t>(&steps_, 1));
      continue;
    }
    moments[k].resize(at(parameters_));
    memory->download(moments[k]);
    state[k] = view_tensor(state[k].name, state[k].shape, std::span<const float>(moments[k]));
  }
  to.restore(state);
}

void DeviceOptimiser::take(const Optimiser<float>& from) {
  steps_ = from.steps();
  for (const TensorView& tensor : from.state()) {
    const DeviceMemory* const memory = moment(tensor);
    if (memory == &first_) first_.upload(tensor.bytes);
    if (memory == &second_) second_.upload(tensor.bytes);
  }
}

}  // namespace ebb
