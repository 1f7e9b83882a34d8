// SPDX-License-Identifier: Apache-2.0
// The readout that integrates (leaky_math.h) over a segment of time steps on a GPU: a thread has one output of one sample. All arrays are
// floats on the GPU that is current. Calls return at once; the work is on the stream. They throw as those of gated.h.
#pragma once

#include <cstdint>

namespace ebb {

struct LeakyShape {
  std::int64_t steps = 0, batch = 0, outputs = 0;
};

// `outputs` [K,B,O] has sums of inputs and biases, and then what is given out.
void leaky_forward(const LeakyShape& shape, const float* decays, const float* before,
                   float* outputs, float* after, void* stream);

struct LeakyBackward {
  const float* decays = nullptr;            // [O]
  const float* before = nullptr;            // [B,O]
  const float* outputs = nullptr;           // [K,B,O]
  const float* outputs_gradient = nullptr;  // [K,B,O]; may be null
  const float* after_gradient = nullptr;    // [B,O]: of the last output as a state
  float* sums_gradient = nullptr;           // [K,B,O]
  float* before_gradient = nullptr;         // [B,O]; may be after_gradient
  float* decays_gradient = nullptr;         // [B,O]: of each sample; null: not wanted
};
void leaky_backward(const LeakyShape& shape, const LeakyBackward& given, void* stream);

}  // namespace ebb
