// SPDX-License-Identifier: Apache-2.0
#include "ebb/compress/block_pool.h"

#include <algorithm>

#include "ebb/compress/block_fold.h"
#include "ebb/core/error.h"
#include "ebb/core/flush_to_zero.h"

namespace ebb {
namespace {

using Axes = std::array<PoolAxis, 3>;

// Row after row of the map into one row of blocks, which lies in `to` from the start.
template <class Fold, class Run, class Number>
void fold_row(const Number* __restrict row, std::int64_t whole, Run run, std::int64_t rest,
              bool first, Number* __restrict to) {
  if (first) {
    for (std::int64_t b = 0; b < whole; ++b) to[b] = folded<Fold>(row + b * run, run);
  } else {
    for (std::int64_t b = 0; b < whole; ++b) {
      to[b] = Fold::both(to[b], folded<Fold>(row + b * run, run));
    }
  }
  if (rest == 0) return;
  const Number last = folded<Fold>(row + whole * run, rest);
  to[whole] = first ? last : Fold::both(to[whole], last);
}

template <class Number>
void divide(Number* to, std::int64_t whole, std::int64_t rest, std::int64_t rows,
            std::int64_t run) {
  const auto count = static_cast<Number>(rows * run);
  for (std::int64_t b = 0; b < whole; ++b) to[b] /= count;
  if (rest != 0) to[whole] /= static_cast<Number>(rows * rest);
}

template <class Fold, class Number>
void pool_plane(const Axes& axes, const Number* x, Number* pooled) {
  const PoolAxis& outer = axes[0];
  const PoolAxis& middle = axes[1];
  const PoolAxis& inner = axes[2];
  const std::int64_t whole = inner.in / inner.block;
  const std::int64_t rest = inner.in % inner.block;
  with_run(inner.block, [&](auto run) {
    for (std::int64_t b0 = 0; b0 < outer.in; b0 += outer.block) {
      const std::int64_t end0 = std::min(outer.in, b0 + outer.block);
      for (std::int64_t b1 = 0; b1 < middle.in; b1 += middle.block, pooled += inner.blocks()) {
        const std::int64_t end1 = std::min(middle.in, b1 + middle.block);
        for (std::int64_t i = b0; i < end0; ++i) {
          for (std::int64_t j = b1; j < end1; ++j) {
            fold_row<Fold>(x + (i * middle.in + j) * inner.in, whole, run, rest, i == b0 && j == b1,
                           pooled);
          }
        }
        if constexpr (std::is_same_v<Fold, Add>) {
          divide(pooled, whole, rest, (end0 - b0) * (end1 - b1), inner.block);
        }
      }
    }
  });
}

}  // namespace

template <class Number>
void pool_blocks(Workers& workers, std::int64_t planes, const Axes& axes, Pooling kind,
                 const Number* x, Number* pooled) {
  std::int64_t from = 1;
  std::int64_t to = 1;
  for (const PoolAxis& axis : axes) {
    if (axis.in < 1 || axis.block < 1) {
      fail(ErrorCode::invalid_argument, "pool_blocks: an axis of ", axis.in, " in blocks of ",
           axis.block, "; both must be at least 1");
    }
    from *= axis.in;
    to *= axis.blocks();
  }
  workers.split(planes, 1, [&](std::int64_t first, std::int64_t last) {
    const KeepSmallNumbers keep;
    for (std::int64_t plane = first; plane < last; ++plane) {
      if (kind == Pooling::average) {
        pool_plane<Add>(axes, x + plane * from, pooled + plane * to);
      } else {
        pool_plane<Larger>(axes, x + plane * from, pooled + plane * to);
      }
    }
  });
}

template void pool_blocks(Workers&, std::int64_t, const Axes&, Pooling, const float*, float*);
template void pool_blocks(Workers&, std::int64_t, const Axes&, Pooling, const double*, double*);

}  // namespace ebb
