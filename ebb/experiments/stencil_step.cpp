// SPDX-License-Identifier: Apache-2.0
#include "ebb/experiments/stencil_step.h"

#include <cstring>
#include <utility>

#include "ebb/core/error.h"

namespace ebb {
namespace {

// Below 1/2 over the largest conductivity, 1.5: the explicit scheme is stable and monotone.
constexpr float kDiffusion = 0.25F;

// out[i] = at(left, here, right) of in[i-1], in[i], in[i+1] on the ring. `in` and `out` do not
// overlap.
template <class At>
void along_ring(const float* __restrict in, float* __restrict out, std::size_t cells, At at) {
  out[0] = at(in[cells - 1], in[0], in[1]);
  for (std::size_t i = 1; i + 1 < cells; ++i) out[i] = at(in[i - 1], in[i], in[i + 1]);
  out[cells - 1] = at(in[cells - 2], in[cells - 1], in[0]);
}

void nonlinear_sweep(const float* in, float* out, std::size_t cells) {
  along_ring(in, out, cells, [](float left, float here, float right) {
    return here + kDiffusion * (0.5F * left * left - here * here + 0.5F * right * right);
  });
}

// Its own adjoint.
void linear_sweep(const float* in, float* out, std::size_t cells) {
  along_ring(in, out, cells, [](float left, float here, float right) {
    return here + kDiffusion * (left - 2.0F * here + right);
  });
}

// The transpose of nonlinear_sweep's derivative at the state `before`.
void nonlinear_adjoint(const float* __restrict before, const float* __restrict in,
                       float* __restrict out, std::size_t cells) {
  const auto at = [](float u, float left, float here, float right) {
    return here + kDiffusion * u * (left - 2.0F * here + right);
  };
  out[0] = at(before[0], in[cells - 1], in[0], in[1]);
  for (std::size_t i = 1; i + 1 < cells; ++i) out[i] = at(before[i], in[i - 1], in[i], in[i + 1]);
  out[cells - 1] = at(before[cells - 1], in[cells - 2], in[cells - 1], in[0]);
}

float* floats(std::byte* bytes) { return reinterpret_cast<float*>(bytes); }

}  // namespace

StencilStep::StencilStep(std::int64_t steps, std::int64_t cells, std::int64_t sweeps)
    : steps_(steps), cells_(static_cast<std::size_t>(cells)), sweeps_(sweeps) {
  if (steps < 0 || cells < kLeastCells || sweeps < 1) {
    fail(ErrorCode::invalid_argument, "StencilStep: ", steps, " steps, ", cells, " cells, ", sweeps,
         " sweeps; there must be 0, ", kLeastCells, " and 1 or more");
  }
}

std::vector<float> StencilStep::initial() const {
  std::vector<float> state(cells_);
  for (std::size_t i = 0; i < cells_; ++i) {
    state[i] = 0.5F + static_cast<float>(i * 37 % 101) / 100.0F;
  }
  return state;
}

std::vector<float> StencilStep::final_adjoint() const {
  std::vector<float> adjoint(cells_);
  for (std::size_t i = 0; i < cells_; ++i) {
    adjoint[i] = 1.0F + static_cast<float>(i * 13 % 29) / 29.0F;
  }
  return adjoint;
}

StepBytes StencilStep::bytes(std::int64_t) const {
  const auto state = static_cast<Bytes>(cells_ * sizeof(float));
  return {.state = state, .tape = 2 * state, .adjoint = state, .scratch = state};
}

void StencilStep::run(const float* before, float* after, float* other) const {
  // So that the last sweep ends in `after`.
  float* to = sweeps_ % 2 == 0 ? other : after;
  float* from = sweeps_ % 2 == 0 ? after : other;
  nonlinear_sweep(before, to, cells_);
  for (std::int64_t k = 1; k < sweeps_; ++k) {
    std::swap(from, to);
    linear_sweep(from, to, cells_);
  }
}

std::int64_t StencilStep::advance(const StepSpan& span, std::byte* state, std::byte* scratch) {
  // Through both memories in turn, so that an odd number of sweeps needs no copy but at the end.
  float* in = floats(state);
  float* out = floats(scratch);
  for (std::int64_t i = span.from; i < span.to; ++i) {
    if (sweeps_ % 2 == 0) {
      run(in, in, out);
    } else {
      run(in, out, in);
      std::swap(in, out);
    }
  }
  if (in != floats(state)) std::memcpy(state, in, cells_ * sizeof(float));
  return span.to;
}

void StencilStep::record(const StepSpan& span, std::byte* state, const Tapes& tapes,
                         std::byte* scratch) {
  const float* in = floats(state);
  for (std::int64_t i = span.from; i < span.to; ++i) {
    float* const before = floats(tapes.at(i - span.from));
    float* const after = before + cells_;
    std::memcpy(before, in, cells_ * sizeof(float));
    run(before, after, floats(scratch));
    in = after;
  }
  if (in != floats(state)) std::memcpy(state, in, cells_ * sizeof(float));
}

void StencilStep::reverse(std::int64_t from, std::int64_t to, const Tapes& tapes,
                          std::byte* adjoint, std::byte* scratch) {
  float* in = floats(adjoint);
  float* out = floats(scratch);
  for (std::int64_t i = to - 1; i >= from; --i) {
    for (std::int64_t k = 1; k < sweeps_; ++k) {
      linear_sweep(in, out, cells_);
      std::swap(in, out);
    }
    nonlinear_adjoint(floats(tapes.at(i - from)), in, out, cells_);
    std::swap(in, out);
  }
  if (in != floats(adjoint)) std::memcpy(adjoint, in, cells_ * sizeof(float));
}

std::vector<FieldShape> StencilStep::state_fields() const {
  return {{"temperature", Element::f32, 0, bytes(0).state}};
}

std::vector<FieldShape> StencilStep::tape_fields() const {
  const Bytes state = bytes(0).state;
  return {{"before", Element::f32, 0, state}, {"after", Element::f32, state, state}};
}

}  // namespace ebb
