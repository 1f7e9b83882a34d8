// SPDX-License-Identifier: Apache-2.0
#include "ebb/codec/tap_sums.h"

#include "ebb/codec/block_fold.h"

namespace ebb {

// Blocks [from, to) of the last axis, at blocks `outer` and `middle` of the others.
template <class Number>
struct TapSums<Number>::Piece {
  std::int64_t outer, middle, from, to;
};

template <class Number>
TapSums<Number>::TapSums(const ConvShape& shape) : shape_(shape) {
  const ConvAxis& axis = shape.axes[2];
  if (axis.block % axis.stride == 0) {
    run_ = axis.block / axis.stride;
    whole_ = axis.in / axis.block;
  }
  for (std::int64_t tap = 0; tap < axis.kernel; ++tap) {
    offset_.push_back(first_output(axis, tap, 0));
    left_ = std::max(left_, -offset_.back());
    right_ = std::max(right_, offset_.back() + whole_ * run_ - axis.out);
  }
}

template <class Number>
void TapSums<Number>::form(const Number* gy, std::int64_t from, std::int64_t to, Number* row,
                           Number* sums, std::int64_t stride) const {
  const std::int64_t inner = shape_.axes[2].blocks();
  const std::int64_t middle = shape_.axes[1].blocks();
  for (std::int64_t at = from; at < to;) {
    const std::int64_t line = at / inner;
    const std::int64_t first = at % inner;
    const std::int64_t here = std::min(inner - first, to - at);
    form_piece(gy, {line / middle, line % middle, first, first + here}, row, sums + (at - from),
               stride);
    at += here;
  }
}

template <class Number>
void TapSums<Number>::form_piece(const Number* gy, const Piece& piece, Number* row, Number* sums,
                                 std::int64_t stride) const {
  const auto& [outer, middle, inner] = shape_.axes;
  const TapWindow columns = columns_of(piece);
  for (std::int64_t t0 = 0; t0 < outer.kernel; ++t0) {
    const TapWindow planes = tap_window(outer, t0, piece.outer);
    for (std::int64_t t1 = 0; t1 < middle.kernel; ++t1, sums += inner.kernel * stride) {
      const TapWindow rows = tap_window(middle, t1, piece.middle);
      if (planes.from == planes.to || rows.from == rows.to) {
        for (std::int64_t t2 = 0; t2 < inner.kernel; ++t2) {
          std::fill_n(sums + t2 * stride, piece.to - piece.from, Number{0});
        }
        continue;
      }
      add_rows(gy, planes, rows, columns, row + left_);
      fold_row(row + left_, piece, sums, stride);
    }
  }
}

// The outputs of the last axis that some tap takes into the piece's blocks: from the last tap's
// first to the first tap's last.
template <class Number>
TapWindow TapSums<Number>::columns_of(const Piece& piece) const {
  const ConvAxis& axis = shape_.axes[2];
  return {tap_window(axis, axis.kernel - 1, piece.from).from, tap_window(axis, 0, piece.to - 1).to};
}

template <class Number>
void TapSums<Number>::add_rows(const Number* gy, TapWindow outer, TapWindow middle,
                               TapWindow columns, Number* row) const {
  const std::int64_t width = shape_.axes[2].out;
  const std::int64_t count = columns.to - columns.from;
  Number* const __restrict to = row + columns.from;
  bool first = true;
  for (std::int64_t i = outer.from; i < outer.to; ++i) {
    for (std::int64_t j = middle.from; j < middle.to; ++j) {
      const Number* const line = gy + (i * shape_.axes[1].out + j) * width + columns.from;
      if (first) {
        std::copy_n(line, count, to);
      } else {
        for (std::int64_t c = 0; c < count; ++c) to[c] += line[c];
      }
      first = false;
    }
  }
}

template <class Number>
void TapSums<Number>::fold_row(const Number* row, const Piece& piece, Number* sums,
                               std::int64_t stride) const {
  const ConvAxis& axis = shape_.axes[2];
  const std::int64_t whole = std::clamp(whole_, piece.from, piece.to);
  for (std::int64_t tap = 0; tap < axis.kernel; ++tap) {
    Number* const __restrict to = sums + tap * stride;
    if (whole > piece.from) {
      const Number* const first = row + offset_[static_cast<std::size_t>(tap)] + piece.from * run_;
      const std::int64_t count = whole - piece.from;
      with_run(run_, [&](auto run) {
        for (std::int64_t b = 0; b < count; ++b) to[b] = folded<Add>(first + b * run, run);
      });
    }
    for (std::int64_t b = whole; b < piece.to; ++b) {
      const TapWindow window = tap_window(axis, tap, b);
      Number sum{0};
      for (std::int64_t i = window.from; i < window.to; ++i) sum += row[i];
      to[b - piece.from] = sum;
    }
  }
}

template class TapSums<float>;
template class TapSums<double>;

}  // namespace ebb
