// SPDX-License-Identifier: Apache-2.0
// Gated cells over a segment of time steps on a GPU: one kernel runs all of its steps, with the recurrent weights in registers and
// shared memory.
// What the inputs add to the sums, and what becomes of the gradients of the sums, are large products that the caller makes. Whoever
// still has the outputs makes all sums so, and what the backward pass needs follows without running the steps again.
//
// Numbers that blocks hand to each other announce themselves: the memory of outputs and of exchanged gradients is filled with a pattern
// that no result has, and a reader looks until it is gone. So nothing waits for a barrier of the whole grid, and no order of
// additions depends on who comes first: bits are the same in every run, for every way to cut a sequence into segments.
//
// All pointers are to memory of the GPU that is current. Calls return at once; the work is on the stream.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ebb/cell/surrogate.h"

namespace ebb {

enum class GatedCell : std::uint8_t { lstm, gru, rnn_tanh, rnn_relu, egru };
// Of what is multiplied: tf32 are floats that are rounded to it, f32 floats of which products keep 21 bits.
enum class GatedNumber : std::uint8_t { bf16, f16, tf32, f32 };
constexpr std::int64_t bytes_of(GatedNumber number) { return number < GatedNumber::tf32 ? 2 : 4; }
// Units that read each other are a multiple of that many, on any GPU.
constexpr std::int64_t units_together(GatedNumber number) { return 64 / bytes_of(number); }

struct GatedShape {
  GatedCell cell = GatedCell::lstm;
  GatedNumber number = GatedNumber::bf16;
  std::int64_t steps = 0, batch = 0, hidden = 0;
  bool backwards = false;  // the last time step of the memory is the first one of the sequence
};

// G gates of H units, in the order of torch.nn, or of egru_math.h; T is the number's type, [..] the shape. The float field is c of an
// lstm or an egru and h of a gru, which keep it in float; an rnn has none. h of an egru is what is heard of its c, and what c loses in the
// next step is the same number, rounded as it is handed on.
struct GatedForward {
  const void* weights = nullptr;  // T [G*H,H]
  const void* bias =
      nullptr;  // T [H], of the sum that r of a gru or an egru multiplies; may be null
  void* sums =
      nullptr;  // T [K,B,G*H]: of inputs and biases; where it is recorded, the gates in their place
  const void* before = nullptr;         // T [B,H]: h
  const float* field_before = nullptr;  // [B,H]
  void* outputs = nullptr;              // T [K,B,H]; its old content does not matter
  float* field_after = nullptr;         // [B,H]; may be field_before
  float* fields = nullptr;              // [K,B,H], of an lstm or an egru; null: nothing is recorded
  void* products =
      nullptr;  // T [K,B,H], of a gru or an egru: what r multiplies; null: nothing is recorded
  const float* thresholds = nullptr;  // [H], of an egru
};

// As of GatedForward, but for the sums. Not of an egru, for which they are not needed.
struct GatedRecall {
  void* sums =
      nullptr;  // T [K,B,G*H]: whole, but for a gru's last gate, to which h adds nothing; the gates in their place
  const void* products = nullptr;       // T [K,B,H], of a gru
  const float* field_before = nullptr;  // [B,H], of an lstm
  float* fields = nullptr;              // [K,B,H], of an lstm
};

struct GatedBackward {
  const void* weights = nullptr;
  const void* gates = nullptr;  // as recorded or recalled; an rnn needs none
  const float* fields = nullptr;
  const void* products = nullptr;
  const void* outputs = nullptr;
  const void* before = nullptr;
  const float* field_before = nullptr;
  const void* outputs_gradient = nullptr;  // T [K,B,H]; may be null
  const float* after_gradient = nullptr;   // [B,H]: of h after the segment
  const float* field_gradient = nullptr;   // [B,H]: of c after it, of an lstm or an egru
  void* sums_gradient =
      nullptr;  // T [K,B,G*H]: of the recurrent sums; its old content does not matter
  void* inputs_gradient =
      nullptr;  // T [K,B,G*H], of a gru or an egru: of the sums that inputs add to; may be where the gates are
  float* before_gradient = nullptr;        // [B,H]; may be after_gradient
  float* field_before_gradient = nullptr;  // [B,H], of an lstm or an egru; may be field_gradient
  // Of an egru: what stands in for the derivative of being heard.
  const float* thresholds = nullptr;
  float* thresholds_gradient = nullptr;  // [B,H]: of each sample; null: not wanted
  Surrogate surrogate = Surrogate::triangular;
  float sharpness = 0;
};

// Compute capabilities that the kernels were compiled for, 80 for 8.0; none: this build has no kernels.
std::vector<int> gated_architectures();

// Why such a segment cannot run on the GPU that is current; empty: it can.
std::string gated_unfit(const GatedShape& shape);

// `stream` is a cudaStream_t. Throw Error(invalid_argument) for what does not fit, Error(device) where CUDA fails or where an
// earlier segment gave up, since not all of its blocks ran at the same time.
void gated_forward(const GatedShape& shape, const GatedForward& given, bool record, void* stream);
// What a recorded segment leaves, from its sums. Of an rnn that is nothing; an egru is refused.
void gated_recall(const GatedShape& shape, const GatedRecall& given, void* stream);
void gated_backward(const GatedShape& shape, const GatedBackward& given, void* stream);

// How often a block looks for a number of another one before it gives up; for debuggers and sanitizers, under which that takes long.
void set_gated_patience(std::int64_t looks);
// Whether weights lie in registers where they fit, instead of shared memory; for measuring. On by default.
void set_gated_registers(bool yes);

}  // namespace ebb
