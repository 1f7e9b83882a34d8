// SPDX-License-Identifier: Apache-2.0
#include "ebb/compress/int8_rows.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "ebb/codec/int8_math.h"
#include "ebb/core/error.h"
#include "ebb/core/flush_to_zero.h"

namespace ebb {
namespace {

static_assert(int8_scales(kInt8Block) == 1 && int8_scales(kInt8Block + 1) == 2);
constexpr std::int64_t kGrain = 64;  // blocks of a piece

template <class Number>
std::int32_t largest_size(std::int64_t count, const Number* x, Number mean) {
  std::int32_t largest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    largest = std::max(largest, size_bits(static_cast<float>(x[i] - mean)));
  }
  return largest;
}

float scale_of(std::int32_t largest) {
  if (largest >= kInfiniteSize) return std::numeric_limits<float>::quiet_NaN();
  return int8_scale(std::bit_cast<float>(largest));
}

// A scale that is NaN leaves codes that mean nothing.
template <class Number>
void encode(std::int64_t count, const Number* x, Number mean, float scale, std::int8_t* codes) {
  for (std::int64_t i = 0; i < count; ++i) {
    codes[i] = to_int8(static_cast<float>(x[i] - mean), scale);
  }
}

template <class Number>
void decode(std::int64_t count, const std::int8_t* codes, float scale, Number mean, Number* x) {
  for (std::int64_t i = 0; i < count; ++i) {
    x[i] = mean + static_cast<Number>(from_int8(codes[i], scale));
  }
}

void check(const ChannelShape& shape) {
  if (shape.batch < 1 || shape.channels < 1 || shape.inner < 1) {
    fail(ErrorCode::invalid_argument, "int8 channels: a tensor [", shape.batch, ", ",
         shape.channels, ", ", shape.inner, "]; each size must be at least 1");
  }
}

// work(channel, first element of one of its planes) in the order of the batch.
template <class Work>
void each_plane(const ChannelShape& shape, std::int64_t channel, const Work& work) {
  for (std::int64_t n = 0; n < shape.batch; ++n) work((n * shape.channels + channel) * shape.inner);
}

}  // namespace

template <class Number>
void int8_channels_encode(Workers& workers, const ChannelShape& shape, const Number* x,
                          const Number* mean, std::int8_t* codes, float* scales) {
  check(shape);
  workers.split(shape.channels, 1, [&](std::int64_t from, std::int64_t to) {
    const KeepSmallNumbers keep;
    for (std::int64_t c = from; c < to; ++c) {
      const Number centre = mean == nullptr ? Number{0} : mean[c];
      std::int32_t largest = 0;
      each_plane(shape, c, [&](std::int64_t at) {
        largest = std::max(largest, largest_size(shape.inner, x + at, centre));
      });
      scales[c] = scale_of(largest);
      each_plane(shape, c, [&](std::int64_t at) {
        encode(shape.inner, x + at, centre, scales[c], codes + at);
      });
    }
  });
}

template <class Number>
void int8_channels_decode(Workers& workers, const ChannelShape& shape, const std::int8_t* codes,
                          const float* scales, const Number* mean, Number* x) {
  check(shape);
  workers.split(shape.batch * shape.channels, 1, [&](std::int64_t from, std::int64_t to) {
    const KeepSmallNumbers keep;
    for (std::int64_t plane = from; plane < to; ++plane) {
      const std::int64_t c = plane % shape.channels;
      decode(shape.inner, codes + plane * shape.inner, scales[c],
             mean == nullptr ? Number{0} : mean[c], x + plane * shape.inner);
    }
  });
}

template <class Number>
void int8_blocks_encode(Workers& workers, std::int64_t count, const Number* x, std::int8_t* codes,
                        float* scales) {
  workers.split(int8_scales(count), kGrain, [&](std::int64_t from, std::int64_t to) {
    const KeepSmallNumbers keep;
    for (std::int64_t b = from; b < to; ++b) {
      const std::int64_t first = b * kInt8Block;
      const std::int64_t here = std::min(kInt8Block, count - first);
      scales[b] = scale_of(largest_size(here, x + first, Number{0}));
      encode(here, x + first, Number{0}, scales[b], codes + first);
    }
  });
}

template <class Number>
void int8_blocks_decode(Workers& workers, std::int64_t count, const std::int8_t* codes,
                        const float* scales, Number* x) {
  workers.split(int8_scales(count), kGrain, [&](std::int64_t from, std::int64_t to) {
    const KeepSmallNumbers keep;
    for (std::int64_t b = from; b < to; ++b) {
      const std::int64_t first = b * kInt8Block;
      decode(std::min(kInt8Block, count - first), codes + first, scales[b], Number{0}, x + first);
    }
  });
}

template void int8_channels_encode(Workers&, const ChannelShape&, const float*, const float*,
                                   std::int8_t*, float*);
template void int8_channels_encode(Workers&, const ChannelShape&, const double*, const double*,
                                   std::int8_t*, float*);
template void int8_channels_decode(Workers&, const ChannelShape&, const std::int8_t*, const float*,
                                   const float*, float*);
template void int8_channels_decode(Workers&, const ChannelShape&, const std::int8_t*, const float*,
                                   const double*, double*);
template void int8_blocks_encode(Workers&, std::int64_t, const float*, std::int8_t*, float*);
template void int8_blocks_encode(Workers&, std::int64_t, const double*, std::int8_t*, float*);
template void int8_blocks_decode(Workers&, std::int64_t, const std::int8_t*, const float*, float*);
template void int8_blocks_decode(Workers&, std::int64_t, const std::int8_t*, const float*, double*);

}  // namespace ebb
