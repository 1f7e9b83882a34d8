// SPDX-License-Identifier: Apache-2.0
// How a segment of spiking cells is spread over a GPU, and the launch of its kernels.
#pragma once

#include "ebb/cell/gated_spread.cuh"
#include "ebb/cell/spiking.h"

namespace ebb::gated {

template <class T>
struct OfSpikes {
  static Spread spread(const SpikingShape& shape, const Gpu& gpu);
  static void forward(const SpikingShape& shape, const Spread& how, const SpikingForward& given,
                      const Host& host);
  static void recall(const SpikingShape& shape, const SpikingRecall& given, const Host& host);
  static void backward(const SpikingShape& shape, const Spread& how, const SpikingBackward& given,
                       const Host& host);
  // Of cells that are not recurrent.
  static void forward_apart(const SpikingShape& shape, const SpikingForward& given,
                            const Host& host);
  static void backward_apart(const SpikingShape& shape, const SpikingBackward& given,
                             const Host& host);
};

}  // namespace ebb::gated
