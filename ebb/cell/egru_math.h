// SPDX-License-Identifier: Apache-2.0
// The event-based GRU (Subramoney et al. 2022): gates u, r, z as a GRU's, with the reset gate behind
// the recurrent product as in the authors' own code; c = u z + (1 - u) c - y, and the unit is heard
// only where c is above its threshold: y = c there, 0 elsewhere.
#pragma once

#include "ebb/cell/unit.h"

namespace ebb {

struct EgruMath {
  // Fields y, c; sums u, r, z's input part, its recurrent part q; saved u, r, z, q. Parameter
  // threshold.
  static constexpr int kGates = 3, kSums = 4, kFields = 2, kSaved = 4, kParameters = 1;
  static constexpr bool kSpikes = false, kEvents = true;

  template <class Number>
  static EBB_DEVICE void forward(UnitForward<Number>& u, const Constants<Number>&) {
    const Number update = sigmoid(u.sums[0]), r = sigmoid(u.sums[1]), q = u.sums[3];
    const Number z = hyperbolic_tangent(u.sums[2] + r * q);
    const Number c = update * z + (Number{1} - update) * u.before[1] - u.before[0];
    u.after[0] = c * step(c - u.parameters[0]);
    u.after[1] = c;
    u.saved[0] = update;
    u.saved[1] = r;
    u.saved[2] = z;
    u.saved[3] = q;
  }

  template <class Number>
  static EBB_DEVICE Number membrane(const Number*, const Number* after) {
    return after[1];
  }
  template <class Number>
  static EBB_DEVICE Number distance(const Number*, const Number* after, const Number* parameters) {
    return after[1] - parameters[0];
  }

  template <class Number>
  static EBB_DEVICE void backward(UnitBackward<Number>& u, const Constants<Number>&) {
    const Number update = u.saved[0], r = u.saved[1], z = u.saved[2], q = u.saved[3];
    const Number c = u.after[1], threshold = u.parameters[0];
    const Number through = u.output * c * u.slope;
    const Number dc = u.adjoint[1] + u.output * step(c - threshold) + through;
    const Number dz = dc * update * (Number{1} - z * z);
    u.of_parameters[0] -= through;
    u.sums[0] = dc * (z - u.before[1]) * update * (Number{1} - update);
    u.sums[1] = dz * q * r * (Number{1} - r);
    u.sums[2] = dz;
    u.sums[3] = dz * r;
    u.output = -dc;
    u.adjoint[1] = (Number{1} - update) * dc;
  }
};

}  // namespace ebb
