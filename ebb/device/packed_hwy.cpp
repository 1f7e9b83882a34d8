// SPDX-License-Identifier: Apache-2.0
// packed_product with a block of results in registers, compiled for each vector instruction set and
// chosen at run time.
#include <hwy/cache_control.h>

#include <algorithm>

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
// row.
constexpr std::int64_t kMostVectors = 3;
#if HWY_TARGET <= HWY_AVX3
constexpr std::int64_t kRows = 8;
#elif HWY_ARCH_ARM_A64
constexpr std::int64_t kRows = 6;
#else
constexpr std::int64_t kRows = 4;
#endif

PanelWidths widths() {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(Vectors()));
  return {.whole = kMostVectors * lanes, .step = lanes};
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
                               float* c, std::int64_t c_stride) {
  const Vectors d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  if (here == vectors_here * lanes) {
#pragma GCC unroll 8
    for (std::int64_t r = 0; r < rows_here; ++r) {
#pragma GCC unroll 8
      for (std::int64_t v = 0; v < vectors_here; ++v) {
        float* const to = c + r * c_stride + v * lanes;
        hn::StoreU(hn::Add(hn::LoadU(d, to), sums[r][v]), d, to);
      }
    }
    return;
  }
  HWY_ALIGN float row[vectors_here * HWY_MAX_BYTES / sizeof(float)] = {};
#pragma GCC unroll 8
  for (std::int64_t r = 0; r < rows_here; ++r) {
#pragma GCC unroll 8
    for (std::int64_t v = 0; v < vectors_here; ++v) hn::Store(sums[r][v], d, row + v * lanes);
    for (std::int64_t j = 0; j < here; ++j) c[r * c_stride + j] += row[j];
  }
}

// One panel of vectors_here vectors for rows_here rows; `here` of its columns are wanted.
template <std::int64_t rows_here, std::int64_t vectors_here>
HWY_INLINE void rows_product(std::int64_t here, std::int64_t k, const float* HWY_RESTRICT a,
                             std::int64_t a_stride, const float* HWY_RESTRICT panel, float* c,
                             std::int64_t c_stride) {
  const Vectors d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  // Results are needed last and may lie some caches away.
#pragma GCC unroll 8
  for (std::int64_t r = 0; r < rows_here; ++r) {
    hwy::Prefetch(c + r * c_stride);
    hwy::Prefetch(c + r * c_stride + here - 1);
  }
  Sums<rows_here, vectors_here> sums;
#pragma GCC unroll 8
  for (auto& row : sums) {
#pragma GCC unroll 8
    for (auto& sum : row) sum = hn::Zero(d);
  }
  std::int64_t i = 0;
#if HWY_ARCH_ARM_A64
  // A multiplication can take its factor from a lane: one load brings four factors of a row.
  for (; i + 4 <= k; i += 4) {
    hn::Vec<Vectors> factors[rows_here];
#pragma GCC unroll 8
    for (std::int64_t r = 0; r < rows_here; ++r) factors[r] = hn::LoadU(d, a + r * a_stride + i);
    const auto add = [&]<int lane>() HWY_ATTR {
      const auto factor = [&](std::int64_t r) HWY_ATTR { return hn::Broadcast<lane>(factors[r]); };
      add_products<rows_here, vectors_here>(panel, factor, sums);
      panel += vectors_here * lanes;
    };
    add.template operator()<0>();
    add.template operator()<1>();
    add.template operator()<2>();
    add.template operator()<3>();
  }
#endif
  for (; i < k; ++i, panel += vectors_here * lanes) {
    const auto factor = [&](std::int64_t r) HWY_ATTR { return hn::Set(d, a[r * a_stride + i]); };
    add_products<rows_here, vectors_here>(panel, factor, sums);
  }
  add_to_results<rows_here, vectors_here>(here, sums, c, c_stride);
}

// One panel for all rows.
template <std::int64_t vectors_here>
void panel_product(std::int64_t rows, std::int64_t here, std::int64_t k, const float* a,
                   std::int64_t a_stride, const float* panel, float* c, std::int64_t c_stride) {
  std::int64_t r = 0;
  const auto rest = [&]<std::int64_t rows_here>() {
    rows_product<rows_here, vectors_here>(here, k, a + r * a_stride, a_stride, panel,
                                          c + r * c_stride, c_stride);
    r += rows_here;
  };
  while (rows - r >= kRows) rest.template operator()<kRows>();
  if (rows - r >= 4) rest.template operator()<4>();
  if (rows - r >= 2) rest.template operator()<2>();
  if (rows - r >= 1) rest.template operator()<1>();
}

void product(std::int64_t rows, std::int64_t n, std::int64_t k, const float* a,
             std::int64_t a_stride, const float* packed, float* c, std::int64_t c_stride) {
  const auto [wide, lanes] = widths();
  for (std::int64_t from = 0; from < n; from += wide, packed += k * wide) {
    const std::int64_t here = std::min(wide, n - from);
    const auto call = here > 2 * lanes ? panel_product<3>
                      : here > lanes   ? panel_product<2>
                                       : panel_product<1>;
    call(rows, here, k, a, a_stride, packed, c + from, c_stride);
  }
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
void packed_product(std::int64_t rows, std::int64_t n, std::int64_t k, const float* a,
                    std::int64_t a_stride, const float* packed, float* c, std::int64_t c_stride) {
  HWY_DYNAMIC_DISPATCH(product)(rows, n, k, a, a_stride, packed, c, c_stride);
}

// Double precision is for checks.
constexpr std::int64_t kDoubleWidth = 8;

template <>
PanelWidths panel_widths<double>() {
  return {.whole = kDoubleWidth, .step = kDoubleWidth};
}

template <>
void packed_product(std::int64_t rows, std::int64_t n, std::int64_t k, const double* a,
                    std::int64_t a_stride, const double* packed, double* c, std::int64_t c_stride) {
  plain_packed_product<double, kDoubleWidth>(rows, n, k, a, a_stride, packed, c, c_stride);
}

}  // namespace ebb
#endif
