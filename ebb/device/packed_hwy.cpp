// SPDX-License-Identifier: Apache-2.0
// packed_product with a block of results in registers, compiled for each vector instruction set and
// chosen at run time.
#include <hwy/cache_control.h>

#include <algorithm>
#include <utility>

#include "ebb/device/packed.h"
#include "ebb/device/packed_plain.h"

// Vectors whose length is not known when compiling cannot be in arrays.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
// NOLINTNEXTLINE(readability-identifier-naming): Highway's name
#define HWY_TARGET_INCLUDE "ebb/device/packed_hwy.cpp"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace ebb::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Vectors = hn::ScalableTag<float>;

// Results in registers: kRows rows of up to three vectors, beside as many of weights and one of a
// row. kLanes: a multiplication can take its factor from a lane, so that one load brings several.
// kAhead: the next panel is called for; kCuts: narrow vectors would make narrow pieces.
constexpr std::int64_t kMostVectors = 3;
constexpr bool kLanes = HWY_ARCH_ARM_A64;
constexpr bool kAhead = HWY_ARCH_X86;
constexpr bool kCuts = HWY_TARGET <= HWY_AVX3;
constexpr std::int64_t kLine = 16;  // numbers of a cache line
#if HWY_TARGET <= HWY_AVX3
constexpr std::int64_t kRows = 8;
#elif HWY_ARCH_ARM_A64
constexpr std::int64_t kRows = 6;
#else
constexpr std::int64_t kRows = 4;
#endif

PanelWidths widths() {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(Vectors()));
  const std::int64_t whole = kMostVectors * lanes;
  return {.whole = whole, .step = lanes, .cut = kCuts ? lanes : whole};
}

template <std::int64_t rows_here, std::int64_t vectors_here>
using Sums = hn::Vec<Vectors>[rows_here][vectors_here];

// Adds a row of the panel, times factor(r), to the sums of each row r.
template <std::int64_t rows_here, std::int64_t vectors_here, class Factor>
HWY_INLINE void add_products(const float* HWY_RESTRICT panel, const Factor& factor,
                             Sums<rows_here, vectors_here>& sums) {
  const Vectors d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  hn::Vec<Vectors> weights[vectors_here];
#pragma GCC unroll 8
  for (std::int64_t v = 0; v < vectors_here; ++v) weights[v] = hn::LoadU(d, panel + v * lanes);
#pragma GCC unroll 8
  for (std::int64_t r = 0; r < rows_here; ++r) {
    const auto own = factor(r);
#pragma GCC unroll 8
    for (std::int64_t v = 0; v < vectors_here; ++v) {
      sums[r][v] = hn::MulAdd(own, weights[v], sums[r][v]);
    }
  }
}

// Adds the first `here` columns of the sums to the results.
template <std::int64_t rows_here, std::int64_t vectors_here>
HWY_INLINE void add_to_results(std::int64_t here, const Sums<rows_here, vectors_here>& sums,
                               const Results<float>& c) {
  const Vectors d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const float* const start = c.start != nullptr ? c.start : c.values;
  const std::int64_t start_stride = c.start != nullptr ? 0 : c.stride;
  if (here == vectors_here * lanes) {
#pragma GCC unroll 8
    for (std::int64_t r = 0; r < rows_here; ++r) {
#pragma GCC unroll 8
      for (std::int64_t v = 0; v < vectors_here; ++v) {
        const auto before = hn::LoadU(d, start + r * start_stride + v * lanes);
        hn::StoreU(hn::Add(before, sums[r][v]), d, c.values + r * c.stride + v * lanes);
      }
    }
    return;
  }
  HWY_ALIGN float row[vectors_here * HWY_MAX_BYTES / sizeof(float)] = {};
#pragma GCC unroll 8
  for (std::int64_t r = 0; r < rows_here; ++r) {
#pragma GCC unroll 8
    for (std::int64_t v = 0; v < vectors_here; ++v) hn::Store(sums[r][v], d, row + v * lanes);
    for (std::int64_t j = 0; j < here; ++j) {
      c.values[r * c.stride + j] = start[r * start_stride + j] + row[j];
    }
  }
}

// A panel, or some of its columns. `next` will be read after it.
struct Panel {
  const float* HWY_RESTRICT weights;
  std::int64_t row;  // numbers from row to row
  const float* next;
};

template <std::int64_t rows_here, std::int64_t vectors_here>
HWY_INLINE void call_for_results(std::int64_t here, const float* c, std::int64_t c_stride) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(Vectors()));
#pragma GCC unroll 8
  for (std::int64_t r = 0; r < rows_here; ++r) {
    hwy::Prefetch(c + r * c_stride);
    if constexpr (kAhead) {
#pragma GCC unroll 2
      for (std::int64_t v = 1; v < vectors_here; ++v) hwy::Prefetch(c + r * c_stride + v * lanes);
    }
    hwy::Prefetch(c + r * c_stride + here - 1);
  }
}

// Factors of rows that lie beside each other, each in all lanes: from the first four and the last.
template <std::int64_t rows_here, std::size_t... r>
HWY_INLINE void spread(const float* HWY_RESTRICT a, hn::Vec<Vectors>* factors,
                       std::index_sequence<r...> /*rows*/) {
  const Vectors d;
  const auto first = hn::LoadU(d, a), last = hn::LoadU(d, a + rows_here - 4);
  ((factors[r] = r < 4 ? hn::Broadcast<(r < 4 ? r : 0)>(first)
                       : hn::Broadcast<(r < 4 ? 0 : 4 + r - rows_here)>(last)),
   ...);
}

// One panel of vectors_here vectors for rows_here rows; `here` of its columns are wanted.
template <std::int64_t rows_here, std::int64_t vectors_here, bool turned>
HWY_INLINE void rows_product(std::int64_t here, std::int64_t k, const float* HWY_RESTRICT a,
                             std::int64_t a_stride, const Panel& of, const Results<float>& c) {
  const Vectors d;
  const std::int64_t row = kCuts ? of.row : vectors_here * static_cast<std::int64_t>(hn::Lanes(d));
  // Results are needed last and may lie some caches away.
  call_for_results<rows_here, vectors_here>(here, c.values, c.stride);
  Sums<rows_here, vectors_here> sums;
#pragma GCC unroll 8
  for (auto& own : sums) {
#pragma GCC unroll 8
    for (auto& sum : own) sum = hn::Zero(d);
  }
  const float* HWY_RESTRICT panel = of.weights;
  std::int64_t i = 0;
  if constexpr (kLanes && !turned) {
    for (; i + 4 <= k; i += 4) {
      hn::Vec<Vectors> factors[rows_here];
#pragma GCC unroll 8
      for (std::int64_t r = 0; r < rows_here; ++r) factors[r] = hn::LoadU(d, a + r * a_stride + i);
      const auto add = [&]<int lane>() HWY_ATTR {
        const auto factor = [&](std::int64_t r)
                                HWY_ATTR { return hn::Broadcast<lane>(factors[r]); };
        add_products<rows_here, vectors_here>(panel, factor, sums);
        panel += row;
      };
      add.template operator()<0>();
      add.template operator()<1>();
      add.template operator()<2>();
      add.template operator()<3>();
    }
  }
  if constexpr (kLanes && turned && rows_here >= 4) {
    for (; i < k; ++i, panel += row) {
      hn::Vec<Vectors> factors[rows_here];
      spread<rows_here>(a + i * a_stride, factors, std::make_index_sequence<rows_here>());
      const auto factor = [&](std::int64_t r) HWY_ATTR { return factors[r]; };
      add_products<rows_here, vectors_here>(panel, factor, sums);
    }
  }
#pragma GCC unroll 2
  for (; i < k; ++i, panel += row) {
    if constexpr (kAhead) __builtin_prefetch(of.next + i * kLine, 0, 2);
    const auto factor = [&](std::int64_t r) HWY_ATTR {
      return hn::Set(d, turned ? a[i * a_stride + r] : a[r * a_stride + i]);
    };
    add_products<rows_here, vectors_here>(panel, factor, sums);
  }
  add_to_results<rows_here, vectors_here>(here, sums, c);
}

// One panel for all rows. The first of them call for the next panel, each for as many lines as the
// panel has rows: by the time it is read it lies in a near cache.
template <std::int64_t vectors_here, bool turned>
void panel_product(std::int64_t rows, std::int64_t here, std::int64_t k, const float* a,
                   std::int64_t a_stride, Panel panel, Results<float> c) {
  std::int64_t r = 0;
  const float* const end = panel.next + k * panel.row;
  const auto rest = [&]<std::int64_t rows_here>() {
    const float* const own = a + (turned ? r : r * a_stride);
    rows_product<rows_here, vectors_here, turned>(here, k, own, a_stride, panel, c);
    r += rows_here;
    c.values += rows_here * c.stride;
    if (panel.next < end) panel.next += k * kLine;
  };
  while (rows - r >= kRows) rest.template operator()<kRows>();
  if (rows - r >= 4) rest.template operator()<4>();
  if (rows - r >= 2) rest.template operator()<2>();
  if (rows - r >= 1) rest.template operator()<1>();
}

template <bool turned>
void columns_product(std::int64_t rows, const Columns& columns, std::int64_t k, const float* a,
                     std::int64_t a_stride, const float* packed, const Results<float>& c) {
  const auto [wide, lanes, cut] = widths();
  for (std::int64_t from = columns.from; from < columns.to;) {
    const std::int64_t first = from / wide * wide, skipped = from - first;
    const std::int64_t row = panel_width<float>(columns.all - first);
    const std::int64_t here = std::min(wide - skipped, columns.to - from);
    const float* const panel = packed + first * k;
    const auto call = here > 2 * lanes ? panel_product<3, turned>
                      : here > lanes   ? panel_product<2, turned>
                                       : panel_product<1, turned>;
    const std::int64_t done = from - columns.from;
    call(rows, here, k, a, a_stride, {panel + skipped, row, panel + row * k},
         {c.values + done, c.stride, c.start == nullptr ? nullptr : c.start + done});
    from += here;
  }
}

void product(std::int64_t rows, const Columns& columns, std::int64_t k, const Factors<float>& a,
             const float* packed, const Results<float>& c) {
  const auto call = a.turned ? columns_product<true> : columns_product<false>;
  call(rows, columns, k, a.values, a.stride, packed, c);
}

}  // namespace ebb::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ebb {

HWY_EXPORT(widths);
HWY_EXPORT(product);

template <>
PanelWidths panel_widths<float>() {
  return HWY_DYNAMIC_DISPATCH(widths)();
}

template <>
void packed_product(std::int64_t rows, const Columns& columns, std::int64_t k,
                    const Factors<float>& a, const float* packed, const Results<float>& c) {
  HWY_DYNAMIC_DISPATCH(product)(rows, columns, k, a, packed, c);
}

// Double precision is for checks.
constexpr std::int64_t kDoubleWidth = 8;

template <>
PanelWidths panel_widths<double>() {
  return {.whole = kDoubleWidth, .step = kDoubleWidth, .cut = kDoubleWidth};
}

template <>
void packed_product(std::int64_t rows, const Columns& columns, std::int64_t k,
                    const Factors<double>& a, const double* packed, const Results<double>& c) {
  plain_packed_product<double, kDoubleWidth>(rows, columns, k, a, packed, c);
}

}  // namespace ebb
#endif
