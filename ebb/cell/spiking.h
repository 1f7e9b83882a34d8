// SPDX-License-Identifier: Apache-2.0
// Spiking cells over a segment of time steps on a GPU, as gated.h has gated ones: one kernel runs all steps, and with recurrent weights
// its blocks hand spikes to each other. Nothing is recorded on the way: spikes tell what the backward pass needs, since the sums of all
// steps are then large products that the caller makes. Without recurrent weights it needs the sums alone.
//
// All pointers are to memory of the GPU that is current. Calls return at once; the work is on the stream.
#pragma once

#include <cstdint>
#include <string>

#include "ebb/cell/gated.h"
#include "ebb/cell/unit.h"

namespace ebb {

enum class SpikingCell : std::uint8_t { lif, alif, adlif };

struct SpikingShape {
  SpikingCell cell = SpikingCell::lif;
  GatedNumber number = GatedNumber::f32;  // of weights, spikes and sums
  std::int64_t steps = 0, batch = 0, hidden = 0;
  Constants<float> constants = {};
  Surrogate surrogate = Surrogate::fast_sigmoid;
  bool recurrent = true;  // else there are no weights
};

// F fields of H units: the membrane and, but of a lif, its adaptation. P parameters of each unit, in the cell's order (lif_math.h and
// its like). N is what is kept of a time step: 1 number of a lif, 2 of others. T is the number's type.
struct SpikingForward {
  const void* weights = nullptr;         // T [H,H]
  const float* parameters = nullptr;     // [P,H]
  const void* sums = nullptr;            // T [K,B,H]: of inputs and biases
  const void* before = nullptr;          // T [B,H]: spikes
  const float* fields_before = nullptr;  // [F,B,H]
  void* outputs = nullptr;               // T [K,B,H]: spikes; its old content does not matter
  float* fields_after = nullptr;         // [F,B,H]; may be fields_before
};

// Of recurrent cells alone.
struct SpikingRecall {
  const float* parameters = nullptr;
  const void* sums = nullptr;  // T [K,B,H]: whole
  const void* before = nullptr;
  const void* outputs = nullptr;
  const float* fields_before = nullptr;
  float* kept = nullptr;  // as many floats as spiking_kept says
};

struct SpikingBackward {
  const void* weights = nullptr;
  const float* parameters = nullptr;
  const void* sums =
      nullptr;            // T [K,B,H]; read where cells are not recurrent, and may be sums_gradient
  float* kept = nullptr;  // of a recall; room for as much where cells are not recurrent
  const void* outputs = nullptr;
  const void* before = nullptr;
  const float* fields_before = nullptr;
  const void* outputs_gradient = nullptr;   // T [K,B,H]; may be null
  const float* after_gradient = nullptr;    // [B,H]: of the spikes after the segment, as states
  const float* fields_gradient = nullptr;   // [F,B,H]
  void* sums_gradient = nullptr;            // T [K,B,H]; its old content does not matter
  float* before_gradient = nullptr;         // [B,H]; may be after_gradient
  float* fields_before_gradient = nullptr;  // [F,B,H]; may be fields_gradient
  float* parameters_gradient = nullptr;     // [P,B,H]: of each sample; null: not wanted
};

// Why such a segment cannot run on the GPU that is current; empty: it can.
std::string spiking_unfit(const SpikingShape& shape);

// Numbers that a thread keeps on the chip on the way back where cells are not recurrent.
constexpr int kSpikingHeld = 32;

// Floats of `kept`: [N,K,B,H] of recurrent cells, of others the states between stretches of time steps that a thread can keep.
constexpr std::int64_t spiking_kept(const SpikingShape& shape) {
  const std::int64_t numbers = shape.cell == SpikingCell::lif ? 1 : 2;
  const std::int64_t times =
      shape.recurrent ? shape.steps : (shape.steps - 1) / (kSpikingHeld / numbers);
  return numbers * times * shape.batch * shape.hidden;
}

// As those of gated.h.
void spiking_forward(const SpikingShape& shape, const SpikingForward& given, void* stream);
void spiking_recall(const SpikingShape& shape, const SpikingRecall& given, void* stream);
void spiking_backward(const SpikingShape& shape, const SpikingBackward& given, void* stream);

}  // namespace ebb
