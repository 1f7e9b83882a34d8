// SPDX-License-Identifier: Apache-2.0
// The gated recurrent unit, gates in torch.nn.GRU's order r, z, n. The recurrent part of n stands
// apart from its input part, since r multiplies it: q = W_hn h + b_hn, n = tanh(W_in x + b_in + r q).
#pragma once

#include "ebb/cell/activations.h"
#include "ebb/cell/unit.h"

namespace ebb {

struct GruMath {
  // Sums r, z, n's input part, q; saved r, z, n, q.
  static constexpr int kGates = 3, kSums = 4, kFields = 1, kSaved = 4, kParameters = 0;
  static constexpr bool kSpikes = false, kEvents = false;

  template <class Number>
  static EBB_DEVICE void forward(UnitForward<Number>& u, const Constants<Number>&) {
    const Number r = sigmoid(u.sums[0]), z = sigmoid(u.sums[1]), q = u.sums[3];
    const Number n = hyperbolic_tangent(u.sums[2] + r * q);
    u.after[0] = (Number{1} - z) * n + z * u.before[0];
    u.saved[0] = r;
    u.saved[1] = z;
    u.saved[2] = n;
    u.saved[3] = q;
  }

  template <class Number>
  static EBB_DEVICE void backward(UnitBackward<Number>& u, const Constants<Number>&) {
    const Number r = u.saved[0], z = u.saved[1], n = u.saved[2], q = u.saved[3];
    const Number d = u.output, dn = d * (Number{1} - z) * (Number{1} - n * n);
    u.sums[0] = dn * q * r * (Number{1} - r);
    u.sums[1] = d * (u.before[0] - n) * z * (Number{1} - z);
    u.sums[2] = dn;
    u.sums[3] = dn * r;
    u.output = d * z;
  }
};

}  // namespace ebb
