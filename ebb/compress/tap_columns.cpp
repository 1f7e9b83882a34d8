// SPDX-License-Identifier: Apache-2.0
#include "ebb/compress/tap_columns.h"

namespace ebb {
namespace {

// Outputs [from, to) of the last axis, from one row of blocks.
template <class Number>
Number* line(const ConvAxis& axis, const Number* row, std::int64_t tap, std::int64_t from,
             std::int64_t to, Number* at, std::int64_t step) {
  const auto within = [&](std::int64_t i) { return std::clamp(i, from, to); };
  const std::int64_t first = within(first_output(axis, tap, 0));
  const std::int64_t last = within(first_output(axis, tap, axis.in));
  std::int64_t i = from;
  for (; i < first; ++i, at += step) *at = Number{0};
  if (axis.block == axis.stride) {
    const Number* block = row + (i < last ? tap_block(axis, tap, i) : 0);
    for (; i < last; ++i, at += step) *at = *block++;
  } else {
    for (; i < last; ++i, at += step) *at = row[tap_block(axis, tap, i)];
  }
  for (; i < to; ++i, at += step) *at = Number{0};
  return at;
}

}  // namespace

template <class Number>
void tap_column(const ConvShape& shape, const Number* pooled, std::int64_t tap, std::int64_t from,
                std::int64_t to, Number* to_first, std::int64_t step) {
  const auto& [outer, middle, inner] = shape.axes;
  const std::int64_t tap2 = tap % inner.kernel;
  const std::int64_t tap1 = tap / inner.kernel % middle.kernel;
  const std::int64_t tap0 = tap / inner.kernel / middle.kernel;
  Number* at = to_first;
  for (std::int64_t i = from; i < to;) {
    const std::int64_t row = i / inner.out;
    const std::int64_t first = i % inner.out;
    const std::int64_t last = std::min(inner.out, first + to - i);
    const std::int64_t block0 = tap_block(outer, tap0, row / middle.out);
    const std::int64_t block1 = tap_block(middle, tap1, row % middle.out);
    i += last - first;
    if (block0 < 0 || block1 < 0) {
      for (std::int64_t j = first; j < last; ++j, at += step) *at = Number{0};
    } else {
      const Number* const blocks = pooled + (block0 * middle.blocks() + block1) * inner.blocks();
      at = line(inner, blocks, tap2, first, last, at, step);
    }
  }
}

template void tap_column(const ConvShape&, const float*, std::int64_t, std::int64_t, std::int64_t,
                         float*, std::int64_t);
template void tap_column(const ConvShape&, const double*, std::int64_t, std::int64_t, std::int64_t,
                         double*, std::int64_t);

}  // namespace ebb
