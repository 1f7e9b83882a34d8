// SPDX-License-Identifier: Apache-2.0
#include "ebb/compress/tap_sums.h"

#include "ebb/compress/block_fold.h"

namespace ebb {

// Blocks [from, to) of the last axis, at blocks `outer` and `middle` of the others.
template <class Number>
struct TapSums<Number>::Piece {
  std::int64_t outer, middle, from, to;
};

template <class Number>
TapSums<Number>::TapSums(const ConvShape& shape)
    : shape_(shape), outer_(shape.axes[0]), middle_(shape.axes[1]), inner_(shape.axes[2]) {
  const ConvAxis& axis = shape.axes[2];
  for (std::int64_t tap = 0; tap < axis.kernel; ++tap) {
    left_ = std::max(left_, -inner_.start(tap));
    right_ = std::max(right_, inner_.start(tap) + inner_.whole() * inner_.run() - axis.out);
  }
}

template <class Number>
void TapSums<Number>::form(const Number* gy, std::int64_t from, std::int64_t to, Number* row,
                           Number* sums, std::int64_t stride) const {
  const std::int64_t inner = shape_.axes[2].blocks();
  const std::int64_t middle = shape_.axes[1].blocks();
  Piece piece{from / inner / middle, from / inner % middle, from % inner, 0};
  for (std::int64_t at = from; at < to;) {
    piece.to = std::min(inner, piece.from + to - at);
    form_piece(gy, piece, row, sums + (at - from), stride);
    at += piece.to - piece.from;
    piece.from = 0;
    if (++piece.middle == middle) {
      piece.middle = 0;
      ++piece.outer;
    }
  }
}

template <class Number>
void TapSums<Number>::form_piece(const Number* gy, const Piece& piece, Number* row, Number* sums,
                                 std::int64_t stride) const {
  const auto& [outer, middle, inner] = shape_.axes;
  const TapWindow columns = columns_of(piece);
  for (std::int64_t t0 = 0; t0 < outer.kernel; ++t0) {
    const TapWindow planes = outer_(t0, piece.outer);
    for (std::int64_t t1 = 0; t1 < middle.kernel; ++t1, sums += inner.kernel * stride) {
      const TapWindow rows = middle_(t1, piece.middle);
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
  return {inner_(shape_.axes[2].kernel - 1, piece.from).from, inner_(0, piece.to - 1).to};
}

template <class Number>
void TapSums<Number>::add_rows(const Number* gy, TapWindow outer, TapWindow middle,
                               TapWindow columns, Number* row) const {
  const std::int64_t count = columns.to - columns.from;
  const std::int64_t inside = middle.to - middle.from;
  const std::int64_t lines = (outer.to - outer.from) * inside;
  const auto line = [&](std::int64_t i) {
    const std::int64_t at =
        (outer.from + i / inside) * shape_.axes[1].out + middle.from + i % inside;
    return gy + at * shape_.axes[2].out + columns.from;
  };
  Number* const __restrict to = row + columns.from;
  if (lines == 1) {
    std::copy_n(line(0), count, to);
    return;
  }
  const Number* const first = line(0);
  const Number* const second = line(1);
  for (std::int64_t c = 0; c < count; ++c) to[c] = first[c] + second[c];
  for (std::int64_t i = 2; i < lines; ++i) {
    const Number* const next = line(i);
    for (std::int64_t c = 0; c < count; ++c) to[c] += next[c];
  }
}

template <class Number>
void TapSums<Number>::fold_row(const Number* row, const Piece& piece, Number* sums,
                               std::int64_t stride) const {
  const std::int64_t whole = std::clamp(inner_.whole(), piece.from, piece.to);
  for (std::int64_t tap = 0; tap < shape_.axes[2].kernel; ++tap) {
    Number* const __restrict to = sums + tap * stride;
    if (whole > piece.from) {
      const Number* const first = row + inner_.start(tap) + piece.from * inner_.run();
      const std::int64_t count = whole - piece.from;
      with_run(inner_.run(), [&](auto run) {
        for (std::int64_t b = 0; b < count; ++b) to[b] = folded<Add>(first + b * run, run);
      });
    }
    for (std::int64_t b = whole; b < piece.to; ++b) {
      const TapWindow window = inner_(tap, b);
      Number sum{0};
      for (std::int64_t i = window.from; i < window.to; ++i) sum += row[i];
      to[b - piece.from] = sum;
    }
  }
}

template class TapSums<float>;
template class TapSums<double>;

}  // namespace ebb
