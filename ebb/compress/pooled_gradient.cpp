// SPDX-License-Identifier: Apache-2.0
#include "ebb/compress/pooled_gradient.h"

#include <memory>

#include "ebb/compress/tap_columns.h"
#include "ebb/compress/tap_sums.h"
#include "ebb/core/flush_to_zero.h"
#include "ebb/device/packed.h"

namespace ebb {
namespace {

// Three ways to the same sums; which is the least work follows from the shape.
enum class Way {
  sums,     // sums of gy by tap and block, times pooled: fewer terms where a block has many outputs
  dots,     // the same, term by term: for few input channels to a group
  columns,  // gy as it is, times what each tap meets: nothing to sum, and gy is not copied
};

// Sizes of tiles: packed columns lie in the second cache beside a tile of sums, a panel and some
// rows of it in the first.
constexpr std::int64_t kDepth = 512;                   // terms of a product at a time
constexpr std::int64_t kPacked = kDepth * 384;         // packed numbers at a time
constexpr std::int64_t kTile = std::int64_t{1} << 16;  // sums at a time
constexpr std::int64_t kLanes = 16;  // sums of a dot product that run side by side

template <class Number>
struct Tiles {
  Way way = Way::sums;
  std::int64_t depth = 0, columns = 0, outputs = 0;  // of a tile; outputs are channels
  std::int64_t packed = 0, sums = 0, row = 0;        // numbers of scratch
};

std::int64_t rounded_up(std::int64_t value, std::int64_t to) { return (value + to - 1) / to * to; }

// In multiplications, each way for one group: a product fills whole panels; forming a number
// costs what eight multiplications do, a dot product's loads double it.
template <class Number>
Way best_way(const ConvShape& shape) {
  constexpr double form = 8;
  const auto width = packed_width<Number>();
  const auto number = [](std::int64_t value) { return static_cast<double>(value); };
  const double rows = number(shape.group_out()) * number(shape.taps()) * number(shape.blocks());
  const double outputs = number(shape.outputs());
  const std::int64_t columns = shape.group_in() * shape.taps();
  const double sums = rows * (number(rounded_up(shape.group_in(), width)) + form);
  const double dots = rows * (number(shape.group_in()) * 2 + form);
  const double whole = outputs * (number(shape.group_out()) * number(rounded_up(columns, width)) +
                                  number(columns) * form);
  if (whole <= sums && whole <= dots) return Way::columns;
  return sums <= dots ? Way::sums : Way::dots;
}

// Of `all` columns, whole panels of packed weights with `depth` rows.
template <class Number>
std::int64_t columns_at_once(std::int64_t all, std::int64_t depth) {
  const std::int64_t width = packed_width<Number>();
  return std::min(std::max<std::int64_t>(kPacked / depth / width, 1) * width,
                  rounded_up(all, width));
}

template <class Number>
Tiles<Number> tiles_of(const ConvShape& shape) {
  Tiles<Number> t;
  const std::int64_t taps = shape.taps();
  t.way = best_way<Number>(shape);
  if (t.way == Way::columns) {
    t.depth = std::min(kDepth, shape.outputs());
    t.columns = columns_at_once<Number>(shape.group_in() * taps, t.depth);
    t.packed = t.depth * t.columns;
    return t;
  }
  t.depth =
      std::min(std::clamp<std::int64_t>(kTile / taps, 64, kDepth), shape.batch * shape.blocks());
  t.outputs = std::clamp<std::int64_t>(
      std::min(kTile / (taps * t.depth), 2 * kTile / (taps * shape.group_in())), 1,
      shape.group_out());
  t.columns =
      t.way == Way::dots ? shape.group_in() : columns_at_once<Number>(shape.group_in(), t.depth);
  t.packed = t.depth * t.columns;
  t.sums = std::max(t.depth * t.outputs * taps, taps * shape.group_in());
  t.row = TapSums<Number>(shape).row_numbers();
  return t;
}

// Work for one thread or for all: split(count, work(thread, from, to)).
struct Alone {
  template <class Work>
  void operator()(std::int64_t count, const Work& work) const {
    work(0, std::int64_t{0}, count);
  }
};
struct Together {
  Workers* workers;
  template <class Work>
  void operator()(std::int64_t count, const Work& work) const {
    workers->split_by_thread(count, 1, work);
  }
};

template <class Number>
struct Scratch {
  std::unique_ptr<Number[]> packed, sums, row;  // sums and row: those of thread 0, 1, ...

  Scratch(const Tiles<Number>& tiles, int threads)
      : packed(std::make_unique_for_overwrite<Number[]>(static_cast<std::size_t>(tiles.packed))),
        sums(std::make_unique_for_overwrite<Number[]>(
            static_cast<std::size_t>(tiles.sums * threads))),
        row(std::make_unique<Number[]>(static_cast<std::size_t>(tiles.row * threads))) {}
};

// Side by side in a fixed order, so that it is vector code with the same bits everywhere.
template <class Number>
Number dot(std::int64_t count, const Number* a, const Number* b) {
  Number lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::int64_t j = 0; j < kLanes; ++j) lanes[j] += a[i + j] * b[i + j];
  }
  Number sum{0};
  for (; i < count; ++i) sum += a[i] * b[i];
  for (const Number lane : lanes) sum += lane;
  return sum;
}

template <class Number>
void clear(std::int64_t rows, std::int64_t columns, Number* to, std::int64_t stride) {
  for (std::int64_t r = 0; r < rows; ++r) std::fill_n(to + r * stride, columns, Number{0});
}

template <class Number>
class GroupGradient {
 public:
  GroupGradient(const ConvShape& shape, const Tiles<Number>& tiles, const Number* pooled,
                const Number* gy, Number* gw)
      : shape_(shape), tiles_(tiles), sums_(shape), pooled_(pooled), gy_(gy), gw_(gw) {}

  template <class Split>
  void run(std::int64_t group, const Split& split, const Scratch<Number>& scratch) const {
    if (tiles_.way == Way::columns) return by_columns(group, split, scratch);
    by_sums(group, split, scratch);
  }

 private:
  // Blocks [from, to) of all samples, columns of the group's input channels.
  struct Part {
    std::int64_t group, from, to, column, columns;
  };

  const Number* input(std::int64_t sample, std::int64_t group, std::int64_t channel) const {
    return pooled_ +
           (sample * shape_.in_channels + group * shape_.group_in() + channel) * shape_.blocks();
  }
  const Number* output(std::int64_t sample, std::int64_t group, std::int64_t channel) const {
    return gy_ +
           (sample * shape_.out_channels + group * shape_.group_out() + channel) * shape_.outputs();
  }
  Number* weights(std::int64_t group, std::int64_t channel) const {
    return gw_ + (group * shape_.group_out() + channel) * shape_.group_in() * shape_.taps();
  }

  template <class Split>
  void by_columns(std::int64_t group, const Split& split, const Scratch<Number>& scratch) const;
  template <class Split>
  void by_sums(std::int64_t group, const Split& split, const Scratch<Number>& scratch) const;

  // work(sample, first block, end block, position in the range) for pieces of the blocks of all
  // samples, one after the other.
  template <class Work>
  void each_sample(std::int64_t from, std::int64_t to, const Work& work) const {
    const std::int64_t blocks = shape_.blocks();
    for (std::int64_t at = from; at < to;) {
      const std::int64_t first = at % blocks;
      const std::int64_t here = std::min(blocks - first, to - at);
      work(at / blocks, first, first + here, at - from);
      at += here;
    }
  }

  void pack_blocks(std::int64_t group, std::int64_t from, std::int64_t to, std::int64_t column,
                   std::int64_t columns, Number* packed) const;
  void add_part(const Part& part, std::int64_t first, std::int64_t channels, const Number* packed,
                Number* sums, Number* row) const;
  void add_products(std::int64_t rows, std::int64_t columns, std::int64_t depth, const Number* sums,
                    const Number* packed, Number* to) const;
  void taps_last(Number* row, Number* copy) const;

  const ConvShape& shape_;
  const Tiles<Number>& tiles_;
  TapSums<Number> sums_;
  const Number* pooled_;
  const Number* gy_;
  Number* gw_;
};

template <class Number>
template <class Split>
void GroupGradient<Number>::by_columns(std::int64_t group, const Split& split,
                                       const Scratch<Number>& scratch) const {
  const std::int64_t width = packed_width<Number>();
  const std::int64_t taps = shape_.taps();
  const std::int64_t all = shape_.group_in() * taps;
  const std::int64_t outputs = shape_.outputs();
  for (std::int64_t column = 0; column < all; column += tiles_.columns) {
    const std::int64_t columns = std::min(tiles_.columns, all - column);
    for (std::int64_t at = 0; at < shape_.batch * outputs;) {
      const std::int64_t sample = at / outputs;
      const std::int64_t from = at % outputs;
      const std::int64_t to = std::min(outputs, from + tiles_.depth);
      split(rounded_up(columns, width) / width, [&](int, std::int64_t first, std::int64_t last) {
        for (std::int64_t panel = first * width; panel < last * width; panel += width) {
          const std::int64_t wide = panel_width<Number>(columns - panel);
          for (std::int64_t j = panel; j < panel + wide; ++j) {
            Number* const at_column = scratch.packed.get() + panel * (to - from) + j - panel;
            if (j < columns) {
              const std::int64_t c = (column + j) / taps;
              tap_column(shape_, input(sample, group, c), (column + j) % taps, from, to, at_column,
                         wide);
            } else {
              for (std::int64_t i = 0; i < to - from; ++i) at_column[i * wide] = Number{0};
            }
          }
        }
      });
      split(shape_.group_out(), [&](int, std::int64_t first, std::int64_t last) {
        if (at == 0) clear(last - first, columns, weights(group, first) + column, all);
        packed_product(last - first, columns, to - from, output(sample, group, first) + from,
                       outputs, scratch.packed.get(), weights(group, first) + column, all);
      });
      at += to - from;
    }
  }
}

template <class Number>
template <class Split>
void GroupGradient<Number>::by_sums(std::int64_t group, const Split& split,
                                    const Scratch<Number>& scratch) const {
  const std::int64_t all = shape_.batch * shape_.blocks();
  const std::int64_t width = tiles_.way == Way::dots ? 1 : packed_width<Number>();
  for (std::int64_t from = 0; from < all; from += tiles_.depth) {
    const std::int64_t to = std::min(all, from + tiles_.depth);
    for (std::int64_t column = 0; column < shape_.group_in(); column += tiles_.columns) {
      const std::int64_t columns = std::min(tiles_.columns, shape_.group_in() - column);
      split(rounded_up(columns, width) / width, [&](int, std::int64_t first, std::int64_t last) {
        for (std::int64_t panel = first; panel < last; ++panel) {
          pack_blocks(group, from, to, column + panel * width,
                      std::min(width, columns - panel * width),
                      scratch.packed.get() + panel * width * (to - from));
        }
      });
      const Part part{group, from, to, column, columns};
      split(shape_.group_out(), [&](int thread, std::int64_t first, std::int64_t last) {
        for (std::int64_t o = first; o < last; o += tiles_.outputs) {
          add_part(part, o, std::min(tiles_.outputs, last - o), scratch.packed.get(),
                   scratch.sums.get() + thread * tiles_.sums,
                   scratch.row.get() + thread * tiles_.row);
        }
      });
    }
  }
}

// Output channels [first, first + channels). Weights are [output channel, tap, input channel]
// until the last part has been added.
template <class Number>
void GroupGradient<Number>::add_part(const Part& part, std::int64_t first, std::int64_t channels,
                                     const Number* packed, Number* sums, Number* row) const {
  const std::int64_t depth = part.to - part.from;
  const std::int64_t rows = channels * shape_.taps();
  for (std::int64_t i = 0; i < channels; ++i) {
    each_sample(part.from, part.to,
                [&](std::int64_t sample, std::int64_t b, std::int64_t end, std::int64_t position) {
                  sums_.form(output(sample, part.group, first + i), b, end, row,
                             sums + i * shape_.taps() * depth + position, depth);
                });
  }
  Number* const to = weights(part.group, first) + part.column;
  if (part.from == 0) clear(rows, part.columns, to, shape_.group_in());
  add_products(rows, part.columns, depth, sums, packed, to);
  const bool last =
      part.to == shape_.batch * shape_.blocks() && part.column + part.columns == shape_.group_in();
  for (std::int64_t i = 0; last && i < channels; ++i) {
    taps_last(weights(part.group, first + i), sums);
  }
}

// Columns of the group's channels [column, column + columns), one panel; rows are blocks.
template <class Number>
void GroupGradient<Number>::pack_blocks(std::int64_t group, std::int64_t from, std::int64_t to,
                                        std::int64_t column, std::int64_t columns,
                                        Number* packed) const {
  const std::int64_t width = tiles_.way == Way::dots ? 1 : panel_width<Number>(columns);
  each_sample(from, to,
              [&](std::int64_t sample, std::int64_t b, std::int64_t end, std::int64_t position) {
                const Number* const first = input(sample, group, column) + b;
                if (tiles_.way == Way::dots) {
                  std::copy_n(first, end - b, packed + position);
                } else {
                  pack(end - b, columns, first, 1, shape_.blocks(), packed + position * width);
                }
              });
}

template <class Number>
void GroupGradient<Number>::add_products(std::int64_t rows, std::int64_t columns,
                                         std::int64_t depth, const Number* sums,
                                         const Number* packed, Number* to) const {
  if (tiles_.way == Way::sums) {
    packed_product(rows, columns, depth, sums, depth, packed, to, shape_.group_in());
    return;
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) {
      to[r * shape_.group_in() + c] += dot(depth, sums + r * depth, packed + c * depth);
    }
  }
}

// One output channel's weights from [tap, input channel] to [input channel, tap].
template <class Number>
void GroupGradient<Number>::taps_last(Number* row, Number* copy) const {
  const std::int64_t taps = shape_.taps();
  const std::int64_t channels = shape_.group_in();
  if (taps == 1 || channels == 1) return;
  std::copy_n(row, taps * channels, copy);
  for (std::int64_t c = 0; c < channels; ++c) {
    for (std::int64_t t = 0; t < taps; ++t) row[c * taps + t] = copy[t * channels + c];
  }
}

}  // namespace

template <class Number>
void pooled_weight_gradient(Workers& workers, const ConvShape& shape, const Number* pooled,
                            const Number* gy, Number* gw) {
  check(shape);
  const FlushToZero flush;  // as all workers but the caller do by themselves
  const auto tiles = tiles_of<Number>(shape);
  const GroupGradient<Number> gradient(shape, tiles, pooled, gy, gw);
  if (shape.groups >= workers.size() && shape.groups > 1) {
    workers.split(shape.groups, 1, [&](std::int64_t from, std::int64_t to) {
      const Scratch<Number> scratch(tiles, 1);
      for (std::int64_t group = from; group < to; ++group) gradient.run(group, Alone{}, scratch);
    });
    return;
  }
  const Scratch<Number> scratch(tiles, workers.size());
  for (std::int64_t group = 0; group < shape.groups; ++group) {
    gradient.run(group, Together{&workers}, scratch);
  }
}

template <class Number>
std::int64_t pooled_gradient_scratch(const ConvShape& shape, int threads) {
  check(shape);
  const auto tiles = tiles_of<Number>(shape);
  const bool apart = shape.groups >= threads && shape.groups > 1;
  const std::int64_t numbers =
      (apart ? threads : 1) * tiles.packed + threads * (tiles.sums + tiles.row);
  return numbers * static_cast<std::int64_t>(sizeof(Number));
}

template void pooled_weight_gradient(Workers&, const ConvShape&, const float*, const float*,
                                     float*);
template void pooled_weight_gradient(Workers&, const ConvShape&, const double*, const double*,
                                     double*);
template std::int64_t pooled_gradient_scratch<float>(const ConvShape&, int);
template std::int64_t pooled_gradient_scratch<double>(const ConvShape&, int);

}  // namespace ebb
