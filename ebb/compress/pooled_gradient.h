// SPDX-License-Identifier: Apache-2.0
// The weight gradient of a convolution whose input is kept as one number for each block: exactly
// that of the input with each block filled with its number, which is never built (Barley & Fröning
// 2024 build it). Outputs are summed instead, for each tap over those it takes to one block: the
// products then run over blocks, as many times fewer as a block has outputs.
#pragma once

#include <cstdint>

#include "ebb/compress/conv_shape.h"
#include "ebb/core/workers.h"

namespace ebb {

// gw[out_channels, in_channels / groups, kernel...] = sum over samples and blocks of
// pooled[batch, in_channels, blocks...] times the sum of gy[batch, out_channels, out...] over the
// outputs whose tap lands in the block; taps in the padding count for nothing. With blocks of 1
// the plain weight gradient. The bits do not depend on the number of threads. Takes at most
// pooled_gradient_scratch(). Throws Error(invalid_argument) for what check() refuses.
template <class Number>
void pooled_weight_gradient(Workers& workers, const ConvShape& shape, const Number* pooled,
                            const Number* gy, Number* gw);

// Bytes, whatever the batch, the channels and the map: 2 MiB for each thread at most (4 for
// double), and some rows of an output and of the kernel.
template <class Number>
std::int64_t pooled_gradient_scratch(const ConvShape& shape, int threads);

}  // namespace ebb
