// SPDX-License-Identifier: Apache-2.0
// A convolution's kept input as the columns of a product: what each tap meets at each output.
#pragma once

#include <cstdint>

#include "ebb/compress/tap_windows.h"

namespace ebb {

// Column channel * taps + tap of a matrix with a row for each output [from, to) of the map: rows
// are `step` numbers apart, from `to_first`. `pooled` is the channel's plane [blocks...].
template <class Number>
void tap_column(const ConvShape& shape, const Number* pooled, std::int64_t tap, std::int64_t from,
                std::int64_t to, Number* to_first, std::int64_t step);

}  // namespace ebb
