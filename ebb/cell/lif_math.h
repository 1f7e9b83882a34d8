// SPDX-License-Identifier: Apache-2.0
// The leaky integrate-and-fire neuron: u = alpha v + kappa I, a spike where u reaches the threshold,
// then the reset u -> v. With a synaptic current, I = gamma I + input.
#pragma once

#include "ebb/cell/unit.h"

namespace ebb {

template <bool synaptic>
struct LifMath {
  // Fields v and, where there is one, the current; saved u. Parameters threshold, alpha, gamma.
  static constexpr int kGates = 1, kSums = 1, kFields = synaptic ? 2 : 1, kSaved = 1;
  static constexpr int kParameters = synaptic ? 3 : 2;
  static constexpr bool kSpikes = true, kEvents = true;

  template <class Number>
  static EBB_DEVICE Number kappa(Number alpha, const Constants<Number>& c) {
    return Number{1} - c.normalised * alpha;
  }

  template <class Number>
  static EBB_DEVICE void forward(UnitForward<Number>& u, const Constants<Number>& c) {
    const Number threshold = u.parameters[0], alpha = u.parameters[1];
    Number current = u.sums[0];
    if constexpr (synaptic) {
      current += u.parameters[2] * u.before[1];
      u.after[1] = current;
    }
    const Number membrane = alpha * u.before[0] + kappa(alpha, c) * current;
    u.spike = step(membrane - threshold);
    const Number reset = c.hard * (membrane - c.rest) + (Number{1} - c.hard) * threshold;
    u.after[0] = membrane - u.spike * reset;
    u.saved[0] = membrane;
  }

  template <class Number>
  static EBB_DEVICE Number membrane(const Number* saved, const Number*) {
    return saved[0];
  }
  template <class Number>
  static EBB_DEVICE Number distance(const Number* saved, const Number*, const Number* parameters) {
    return saved[0] - parameters[0];
  }

  template <class Number>
  static EBB_DEVICE void backward(UnitBackward<Number>& u, const Constants<Number>& c) {
    const Number threshold = u.parameters[0], alpha = u.parameters[1], membrane = u.saved[0];
    const Number spike = step(membrane - threshold);
    const Number passes = membrane >= c.least ? Number{1} : Number{0};
    const Number slope = passes * u.slope;
    const Number dv = u.adjoint[0], soft = Number{1} - c.hard;
    // What a spike takes off the membrane.
    const Number reset = c.hard * (membrane - c.rest) + soft * threshold;
    const Number ds = u.output - c.attached * reset * dv;
    const Number du = dv * (Number{1} - c.hard * spike) + ds * slope;
    u.of_parameters[0] += -ds * slope - soft * spike * dv;
    if constexpr (synaptic) {
      const Number di = kappa(alpha, c) * du + u.adjoint[1];
      u.of_parameters[1] += du * (u.before[0] - c.normalised * u.after[1]);
      u.of_parameters[2] += di * u.before[1];
      u.sums[0] = di;
      u.adjoint[1] = u.parameters[2] * di;
    } else {
      // v - I = (v - u) / (1 - alpha) where the input counts by 1 - alpha.
      const Number per_alpha =
          c.normalised > Number{0} ? (u.before[0] - membrane) / (Number{1} - alpha) : u.before[0];
      u.of_parameters[1] += du * per_alpha;
      u.sums[0] = kappa(alpha, c) * du;
    }
    u.adjoint[0] = alpha * du;
    u.output = 0;
  }
};

}  // namespace ebb
