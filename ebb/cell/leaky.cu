// SPDX-License-Identifier: Apache-2.0
#include "ebb/cell/leaky.h"

#include "ebb/cell/leaky_math.h"
#include "ebb/device/cuda_call.cuh"

namespace ebb {
namespace {

using Math = ReadoutMath<true>;
constexpr int kThreads = 128;

__device__ std::int64_t own_place() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
unsigned blocks_of(const LeakyShape& shape) {
  return static_cast<unsigned>((shape.batch * shape.outputs + kThreads - 1) / kThreads);
}

__global__ void forward(const LeakyShape shape, const float* decays, const float* before,
                        float* outputs, float* after) {
  const std::int64_t own = own_place(), state = shape.batch * shape.outputs;
  if (own >= state) return;
  const float decay = decays[own % shape.outputs];
  float now = before[own];
  for (std::int64_t t = 0; t < shape.steps; ++t) {
    float& place = outputs[t * state + own];
    const float sum = place;
    float then = 0;
    UnitForward<float> unit{&sum, &now, 0, &decay, &then, nullptr, 0};
    Math::forward(unit, Constants<float>());
    place = now = then;
  }
  after[own] = now;
}

__global__ void backward(const LeakyShape shape, const LeakyBackward io) {
  const std::int64_t own = own_place(), state = shape.batch * shape.outputs;
  if (own >= state) return;
  const float decay = io.decays[own % shape.outputs];
  float carried = io.after_gradient[own], of_decay = 0;
  for (std::int64_t t = shape.steps - 1; t >= 0; --t) {
    const std::int64_t at = t * state + own;
    const float after = io.outputs[at], before = t == 0 ? io.before[own] : io.outputs[at - state];
    float output = carried, of_sum = 0;
    if (io.outputs_gradient != nullptr) output += io.outputs_gradient[at];
    UnitBackward<float> unit{&before, &after, nullptr, 0,       0,
                             &decay,  output, nullptr, &of_sum, &of_decay};
    Math::backward(unit, Constants<float>());
    carried = unit.output;
    io.sums_gradient[at] = of_sum;
  }
  io.before_gradient[own] = carried;
  if (io.decays_gradient != nullptr) io.decays_gradient[own] = of_decay;
}

}  // namespace

void leaky_forward(const LeakyShape& shape, const float* decays, const float* before,
                   float* outputs, float* after, void* stream) {
  forward<<<blocks_of(shape), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      shape, decays, before, outputs, after);
  check_cuda(cudaGetLastError(), "leaky_forward");
}

void leaky_backward(const LeakyShape& shape, const LeakyBackward& given, void* stream) {
  backward<<<blocks_of(shape), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(shape, given);
  check_cuda(cudaGetLastError(), "leaky_backward");
}

}  // namespace ebb
