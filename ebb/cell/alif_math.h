// SPDX-License-Identifier: Apache-2.0
// The neuron with an adaptive threshold (Bellec 2018, Yin 2021): b = rho b + (1 - rho) s,
// A = threshold + beta b, u = alpha u + kappa I - A s (s of the step before), a spike where u reaches
// A. The hard reset forgets the membrane instead: u = alpha u (1 - s) + kappa I.
#pragma once

#include "ebb/cell/unit.h"

namespace ebb {

struct AlifMath {
  // Fields u, b. Parameters threshold, alpha, rho, beta.
  static constexpr int kGates = 1, kSums = 1, kFields = 2, kSaved = 0, kParameters = 4;
  static constexpr bool kSpikes = true, kEvents = true;

  template <class Number>
  static EBB_DEVICE void forward(UnitForward<Number>& u, const Constants<Number>& c) {
    const Number alpha = u.parameters[1], rho = u.parameters[2], s = u.spike_before;
    const Number b = rho * u.before[1] + (Number{1} - rho) * s;
    const Number level = u.parameters[0] + u.parameters[3] * b;
    const Number kept = alpha * u.before[0] * (Number{1} - c.hard * s);
    const Number input = (Number{1} - c.normalised * alpha) * u.sums[0];
    const Number membrane = kept + input - (Number{1} - c.hard) * level * s;
    u.after[0] = membrane;
    u.after[1] = b;
    u.spike = step(membrane - level);
  }

  template <class Number>
  static EBB_DEVICE Number membrane(const Number*, const Number* after) {
    return after[0];
  }
  template <class Number>
  static EBB_DEVICE Number distance(const Number*, const Number* after, const Number* parameters) {
    return after[0] - (parameters[0] + parameters[3] * after[1]);
  }

  template <class Number>
  static EBB_DEVICE void backward(UnitBackward<Number>& u, const Constants<Number>& c) {
    const Number alpha = u.parameters[1], rho = u.parameters[2], beta = u.parameters[3];
    const Number membrane = u.after[0], b = u.after[1], s = u.spike_before;
    const Number level = u.parameters[0] + beta * b;
    const Number soft = Number{1} - c.hard, kappa = Number{1} - c.normalised * alpha;
    const Number passes = membrane >= c.least ? Number{1} : Number{0};
    const Number slope = passes * u.slope;
    const Number du = u.adjoint[0] + slope * u.output;
    const Number dlevel = -slope * u.output - soft * s * du;
    const Number db = u.adjoint[1] + beta * dlevel;
    const Number kept = u.before[0] * (Number{1} - c.hard * s);
    const Number input = membrane - alpha * kept + soft * level * s;  // kappa I
    u.of_parameters[0] += dlevel;
    u.of_parameters[1] += du * (kept - c.normalised * input / kappa);
    u.of_parameters[2] += db * (u.before[1] - s);
    u.of_parameters[3] += dlevel * b;
    u.sums[0] = kappa * du;
    u.output =
        (Number{1} - rho) * db - c.attached * (soft * level + c.hard * alpha * u.before[0]) * du;
    u.adjoint[0] = alpha * (Number{1} - c.hard * s) * du;
    u.adjoint[1] = rho * db;
  }
};

}  // namespace ebb
