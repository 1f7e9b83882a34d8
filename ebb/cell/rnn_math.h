// SPDX-License-Identifier: Apache-2.0
// Elman's recurrent unit, as torch.nn.RNN: h = tanh(a) or max(a, 0); what is not a number stays so.
#pragma once

#include "ebb/cell/activations.h"
#include "ebb/cell/unit.h"

namespace ebb {

template <bool relu>
struct RnnMath {
  static constexpr int kGates = 1, kSums = 1, kFields = 1, kSaved = 0, kParameters = 0;
  static constexpr bool kSpikes = false, kEvents = false;

  template <class Number>
  static EBB_DEVICE void forward(UnitForward<Number>& u, const Constants<Number>&) {
    const Number a = u.sums[0];
    u.after[0] = relu ? (a <= Number{0} ? Number{0} : a) : hyperbolic_tangent(a);
  }

  template <class Number>
  static EBB_DEVICE void backward(UnitBackward<Number>& u, const Constants<Number>&) {
    const Number h = u.after[0];
    u.sums[0] = relu ? (h <= Number{0} ? Number{0} : u.output) : u.output * (Number{1} - h * h);
    u.output = 0;
  }
};

}  // namespace ebb
