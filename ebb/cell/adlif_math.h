// SPDX-License-Identifier: Apache-2.0
// The adaptive neuron of Bittar and Garner 2022: w = beta w + a u + b s,
// u = alpha (u - threshold s) + kappa (I - w), all of the step before on the right, a spike where u
// reaches the threshold. The hard reset forgets the membrane: u = alpha u (1 - s) + kappa (I - w).
#pragma once

#include "ebb/cell/unit.h"

namespace ebb {

struct AdlifMath {
  // Fields u, w. Parameters threshold, alpha, beta (a decay), a, b.
  static constexpr int kGates = 1, kSums = 1, kFields = 2, kSaved = 0, kParameters = 5;
  static constexpr bool kSpikes = true, kEvents = true;

  template <class Number>
  static EBB_DEVICE void forward(UnitForward<Number>& u, const Constants<Number>& c) {
    const Number threshold = u.parameters[0], alpha = u.parameters[1], s = u.spike_before;
    const Number w =
        u.parameters[2] * u.before[1] + u.parameters[3] * u.before[0] + u.parameters[4] * s;
    const Number kept = u.before[0] - s * (c.hard * u.before[0] + (Number{1} - c.hard) * threshold);
    const Number membrane = alpha * kept + (Number{1} - c.normalised * alpha) * (u.sums[0] - w);
    u.after[0] = membrane;
    u.after[1] = w;
    u.spike = step(membrane - threshold);
  }

  template <class Number>
  static EBB_DEVICE Number membrane(const Number*, const Number* after) {
    return after[0];
  }
  template <class Number>
  static EBB_DEVICE Number distance(const Number*, const Number* after, const Number* parameters) {
    return after[0] - parameters[0];
  }

  template <class Number>
  static EBB_DEVICE void backward(UnitBackward<Number>& u, const Constants<Number>& c) {
    const Number threshold = u.parameters[0], alpha = u.parameters[1], beta = u.parameters[2];
    const Number membrane = u.after[0], s = u.spike_before, soft = Number{1} - c.hard;
    const Number kappa = Number{1} - c.normalised * alpha;
    const Number passes = membrane >= c.least ? Number{1} : Number{0};
    const Number slope = passes * u.slope;
    const Number du = u.adjoint[0] + slope * u.output;
    const Number dw = u.adjoint[1] - kappa * du;
    const Number reset = c.hard * u.before[0] + soft * threshold;
    const Number kept = u.before[0] - s * reset;
    const Number input = (membrane - alpha * kept) / kappa;  // I - w
    u.of_parameters[0] += -slope * u.output - alpha * soft * s * du;
    u.of_parameters[1] += du * (kept - c.normalised * input);
    u.of_parameters[2] += dw * u.before[1];
    u.of_parameters[3] += dw * u.before[0];
    u.of_parameters[4] += dw * s;
    u.sums[0] = kappa * du;
    u.output = u.parameters[4] * dw - c.attached * alpha * reset * du;
    u.adjoint[0] = alpha * (Number{1} - c.hard * s) * du + u.parameters[3] * dw;
    u.adjoint[1] = beta * dw;
  }
};

}  // namespace ebb
