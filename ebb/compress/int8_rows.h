// SPDX-License-Identifier: Apache-2.0
// Eight-bit copies of a tensor in training: int8_math.h's code with one scale for each channel, or
// for each block of kInt8Block elements. The error is at most half a scale, give or take the last
// bits of a float. What is not finite, or no finite float, makes its channel or block NaN when it
// is decoded: a training step that overflowed shows it, as with the tensor itself.
#pragma once

#include <cstdint>

#include "ebb/core/workers.h"

namespace ebb {

// A tensor [batch, channels, inner].
struct ChannelShape {
  std::int64_t batch = 1, channels = 1, inner = 1;
};

// codes as x, scales[channels]. With `mean`[channels], which may be null, deviations from it are
// coded: x = mean + scale * code. Throws Error(invalid_argument) for a size below 1.
template <class Number>
void int8_channels_encode(Workers& workers, const ChannelShape& shape, const Number* x,
                          const Number* mean, std::int8_t* codes, float* scales);
template <class Number>
void int8_channels_decode(Workers& workers, const ChannelShape& shape, const std::int8_t* codes,
                          const float* scales, const Number* mean, Number* x);

constexpr std::int64_t int8_scales(std::int64_t count) { return (count + 63) / 64; }

// codes[count], scales[int8_scales(count)].
template <class Number>
void int8_blocks_encode(Workers& workers, std::int64_t count, const Number* x, std::int8_t* codes,
                        float* scales);
template <class Number>
void int8_blocks_decode(Workers& workers, std::int64_t count, const std::int8_t* codes,
                        const float* scales, Number* x);

}  // namespace ebb
