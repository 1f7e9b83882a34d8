// SPDX-License-Identifier: Apache-2.0
// Long short-term memory, gates in torch.nn.LSTM's order i, f, g, o: c = f c + i g, h = o tanh c.
#pragma once

#include "ebb/cell/activations.h"
#include "ebb/cell/unit.h"

namespace ebb {

struct LstmMath {
  // Fields h, c; saved: the gates.
  static constexpr int kGates = 4, kSums = 4, kFields = 2, kSaved = 4, kParameters = 0;
  static constexpr bool kSpikes = false, kEvents = false;

  template <class Number>
  static EBB_DEVICE void forward(UnitForward<Number>& u, const Constants<Number>&) {
    const Number i = sigmoid(u.sums[0]), f = sigmoid(u.sums[1]);
    const Number g = hyperbolic_tangent(u.sums[2]), o = sigmoid(u.sums[3]);
    const Number c = f * u.before[1] + i * g;
    u.after[0] = o * hyperbolic_tangent(c);
    u.after[1] = c;
    u.saved[0] = i;
    u.saved[1] = f;
    u.saved[2] = g;
    u.saved[3] = o;
  }

  template <class Number>
  static EBB_DEVICE void backward(UnitBackward<Number>& u, const Constants<Number>&) {
    const Number i = u.saved[0], f = u.saved[1], g = u.saved[2], o = u.saved[3];
    const Number t = hyperbolic_tangent(u.after[1]);
    const Number dc = u.adjoint[1] + u.output * o * (Number{1} - t * t);
    u.sums[0] = dc * g * i * (Number{1} - i);
    u.sums[1] = dc * u.before[1] * f * (Number{1} - f);
    u.sums[2] = dc * i * (Number{1} - g * g);
    u.sums[3] = u.output * t * o * (Number{1} - o);
    u.adjoint[1] = dc * f;
    u.output = 0;
  }
};

}  // namespace ebb
