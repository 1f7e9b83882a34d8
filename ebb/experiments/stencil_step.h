// SPDX-License-Identifier: Apache-2.0
// The problem that `ebb probe` and `ebb bench` measure: a nonlinear heat equation in explicit time
// steps, and the exact adjoint that variational data assimilation takes its gradients from.
//
// A state is a ring of temperatures. One step is one sweep with a conductivity that grows with the
// temperature, u <- u + d L(u^2/2), and sweeps-1 with a constant one, u <- u + d L(u), where
// L(u)[i] = u[i-1] - 2 u[i] + u[i+1]. Both conserve the sum and take no temperature beyond its
// neighbours', so that neither states nor adjoints grow or fade, however many steps. Only the first
// sweep is nonlinear: a tape is the states before and after the step, and compute per byte can be
// chosen by the number of sweeps.
#pragma once

#include <cstdint>
#include <vector>

#include "ebb/run/step.h"

namespace ebb {

class StencilStep : public Step {
 public:
  static constexpr std::int64_t kLeastCells = 16;
  // What the commands take.
  static constexpr Bytes kLeastState = 64, kMostState = Bytes{1} << 40;
  static constexpr std::int64_t kMostSteps = 1'000'000'000, kMostSweeps = 1'000'000;
  // Floats in a state of that many bytes, the last one whole.
  static constexpr std::int64_t cells_in(Bytes state) { return (state + 3) / 4; }

  // A state of `cells` floats. Throws Error(invalid_argument) for a negative number of steps, fewer
  // than kLeastCells cells and less than 1 sweep.
  StencilStep(std::int64_t steps, std::int64_t cells, std::int64_t sweeps);

  // Temperatures from 0.5 to 1.5, and the gradient of a loss that looks at some of them more than
  // at others.
  std::vector<float> initial() const;
  std::vector<float> final_adjoint() const;

  std::int64_t steps() const override { return steps_; }
  StepBytes bytes(std::int64_t step) const override;
  std::int64_t advance(const StepSpan& span, std::byte* state, std::byte* scratch) override;
  void record(const StepSpan& span, std::byte* state, const Tapes& tapes,
              std::byte* scratch) override;
  void reverse(std::int64_t from, std::int64_t to, const Tapes& tapes, std::byte* adjoint,
               std::byte* scratch) override;
  std::vector<FieldShape> state_fields() const override;
  std::vector<FieldShape> tape_fields() const override;

 private:
  // The step from `before` to `after`. `other` holds what is between. `before` may be the one of the
  // two that the first sweep does not write: `after` for an even number of sweeps, else `other`.
  void run(const float* before, float* after, float* other) const;

  std::int64_t steps_;
  std::size_t cells_;
  std::int64_t sweeps_;
};

}  // namespace ebb
