// SPDX-License-Identifier: Apache-2.0
// Readouts, layers without recurrent weights: o = a, or a leaky integrator o = kappa o + (1 - kappa) a.
#pragma once

#include "ebb/cell/unit.h"

namespace ebb {

template <bool leaky>
struct ReadoutMath {
  static constexpr int kGates = 1, kSums = 1, kFields = 1, kSaved = 0, kParameters = leaky ? 1 : 0;
  static constexpr bool kSpikes = false, kEvents = false;

  template <class Number>
  static EBB_DEVICE void forward(UnitForward<Number>& u, const Constants<Number>& c) {
    if constexpr (leaky) {
      const Number kappa = u.parameters[0];
      u.after[0] = kappa * u.before[0] + (Number{1} - c.normalised * kappa) * u.sums[0];
    } else {
      u.after[0] = u.sums[0];
    }
  }

  template <class Number>
  static EBB_DEVICE void backward(UnitBackward<Number>& u, const Constants<Number>& c) {
    if constexpr (leaky) {
      const Number kappa = u.parameters[0], weight = Number{1} - c.normalised * kappa;
      const Number input = (u.after[0] - kappa * u.before[0]) / weight;
      u.of_parameters[0] += u.output * (u.before[0] - c.normalised * input);
      u.sums[0] = weight * u.output;
      u.output *= kappa;
    } else {
      u.sums[0] = u.output;
      u.output = 0;
    }
  }
};

}  // namespace ebb
