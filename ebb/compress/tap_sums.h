// SPDX-License-Identifier: Apache-2.0
// Sums of a convolution's output gradient: for each tap and block over the outputs that the tap
// takes into the block.
#pragma once

#include <cstdint>

#include "ebb/compress/tap_windows.h"

namespace ebb {

template <class Number>
class TapSums {
 public:
  explicit TapSums(const ConvShape& shape);

  // Numbers that form() needs for itself.
  std::int64_t row_numbers() const { return left_ + shape_.axes[2].out + right_; }

  // One plane gy[out...], blocks [from, to) of its blocks in the order of the map: tap t's sum for
  // block b goes to sums[t * stride + b - from]. `row` has row_numbers(), all 0 before the first
  // call.
  void form(const Number* gy, std::int64_t from, std::int64_t to, Number* row, Number* sums,
            std::int64_t stride) const;

 private:
  struct Piece;
  void form_piece(const Number* gy, const Piece& piece, Number* row, Number* sums,
                  std::int64_t stride) const;
  void add_rows(const Number* gy, TapWindow outer, TapWindow middle, TapWindow columns,
                Number* row) const;
  void fold_row(const Number* row, const Piece& piece, Number* sums, std::int64_t stride) const;
  TapWindow columns_of(const Piece& piece) const;

  ConvShape shape_;
  AxisWindows outer_, middle_, inner_;
  std::int64_t left_ = 0, right_ = 0;  // zeros around a row, so that windows need no clipping
};

}  // namespace ebb
