// SPDX-License-Identifier: Apache-2.0
// The sums of event_sums.h with all columns in registers, compiled for each vector instruction set
// and chosen at run time.
#include <hwy/cache_control.h>

#include "ebb/device/event_sums_plain.h"

// Vectors whose length is not known when compiling cannot be in arrays.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
// NOLINTNEXTLINE(readability-identifier-naming): Highway's name
#define HWY_TARGET_INCLUDE "ebb/device/event_sums_hwy.cpp"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace ebb::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Vectors = hn::ScalableTag<float>;
constexpr std::int64_t kLanes = hn::MaxLanes(Vectors());
constexpr std::int64_t kVectors = kEventWidth / kLanes;

// Rows to come are called for early: they lie anywhere, and some caches away.
constexpr std::int64_t kAhead = 6;
HWY_INLINE void call_for(const float* row) {
#pragma GCC unroll 3
  for (std::int64_t line = 0; line < kEventWidth; line += 16) hwy::Prefetch(row + line);
}

// to += from, times the value if there are values.
template <bool has_values>
HWY_INLINE hn::Vec<Vectors> added(hn::Vec<Vectors> to, hn::Vec<Vectors> from,
                                  hn::Vec<Vectors> value) {
  if constexpr (has_values) return hn::MulAdd(value, from, to);
  return hn::Add(to, from);
}

// The weights of an input in registers, for all rows that it is in.
template <bool has_values>
HWY_INLINE void add_weights_of(const EventList<float>& events, const float* HWY_RESTRICT weights,
                               float* HWY_RESTRICT sums, std::int64_t stride) {
  const Vectors d;
  for (std::int64_t i = 0; i < events.inputs; ++i) {
    const std::uint32_t end = events.starts[i + 1];
    if (events.starts[i] == end) continue;
    hn::Vec<Vectors> of_input[kVectors];
#pragma GCC unroll 16
    for (std::int64_t v = 0; v < kVectors; ++v) {
      of_input[v] = hn::LoadU(d, weights + i * kEventWidth + v * kLanes);
    }
    for (std::uint32_t e = events.starts[i]; e < end; ++e) {
      float* const own = sums + events.rows[e] * stride;
      const auto value = has_values ? hn::Set(d, events.values[e]) : hn::Zero(d);
#pragma GCC unroll 16
      for (std::int64_t v = 0; v < kVectors; ++v) {
        const auto sum = hn::LoadU(d, own + v * kLanes);
        hn::StoreU(added<has_values>(sum, of_input[v], value), d, own + v * kLanes);
      }
    }
  }
}

void add(const EventList<float>& events, const float* weights, float* sums, std::int64_t stride) {
  if (events.values == nullptr) {
    add_weights_of<false>(events, weights, sums, stride);
  } else {
    add_weights_of<true>(events, weights, sums, stride);
  }
}

// The sums of an input's weights in registers, over all rows that it is in.
template <bool has_values>
HWY_INLINE void add_to_weights_of(const EventList<float>& events, const float* HWY_RESTRICT rows,
                                  float* HWY_RESTRICT weights) {
  const Vectors d;
  for (std::int64_t i = 0; i < events.inputs; ++i) {
    const std::uint32_t end = events.starts[i + 1];
    if (events.starts[i] == end) continue;
    float* const own = weights + i * kEventWidth;
    hn::Vec<Vectors> sums[kVectors];
#pragma GCC unroll 16
    for (std::int64_t v = 0; v < kVectors; ++v) sums[v] = hn::LoadU(d, own + v * kLanes);
    for (std::uint32_t e = events.starts[i]; e < end; ++e) {
      const float* const row = rows + events.rows[e] * kEventWidth;
      const auto value = has_values ? hn::Set(d, events.values[e]) : hn::Zero(d);
#pragma GCC unroll 16
      for (std::int64_t v = 0; v < kVectors; ++v) {
        sums[v] = added<has_values>(sums[v], hn::LoadU(d, row + v * kLanes), value);
      }
    }
#pragma GCC unroll 16
    for (std::int64_t v = 0; v < kVectors; ++v) hn::StoreU(sums[v], d, own + v * kLanes);
  }
}

void add_to(const EventList<float>& events, const float* d, float* weights) {
  if (events.values == nullptr) {
    add_to_weights_of<false>(events, d, weights);
  } else {
    add_to_weights_of<true>(events, d, weights);
  }
}

// A row's sums in registers.
template <class Tag, std::int64_t vectors>
HWY_INLINE void sparse_rows(std::int64_t count, const SparseRows<float>& rows,
                            const float* HWY_RESTRICT x, float* HWY_RESTRICT sums) {
  const Tag d;
  constexpr std::int64_t lanes = hn::MaxLanes(Tag()), width = vectors * lanes;
  const std::uint16_t* const HWY_RESTRICT columns = rows.columns;
  const float* const HWY_RESTRICT values = rows.values;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t* const own = rows.starts + i * rows.stride;
    const std::uint32_t end = own[rows.stride];
    hn::Vec<Tag> in_registers[vectors];
#pragma GCC unroll 32
    for (std::int64_t v = 0; v < vectors; ++v) {
      in_registers[v] = hn::LoadU(d, sums + i * width + v * lanes);
    }
    for (std::uint32_t e = own[0]; e < end; ++e) {
      const auto value = hn::Set(d, values[e]);
      const float* const from = x + columns[e] * width;
#pragma GCC unroll 32
      for (std::int64_t v = 0; v < vectors; ++v) {
        in_registers[v] = hn::MulAdd(value, hn::LoadU(d, from + v * lanes), in_registers[v]);
      }
    }
#pragma GCC unroll 32
    for (std::int64_t v = 0; v < vectors; ++v) {
      hn::StoreU(in_registers[v], d, sums + i * width + v * lanes);
    }
  }
}

void sparse(std::int64_t count, const SparseRows<float>& rows, std::int64_t width, const float* x,
            float* sums) {
  using Short = hn::CappedTag<float, kNarrow>;
  if (width == kNarrow) {
    sparse_rows<Short, kNarrow / hn::MaxLanes(Short())>(count, rows, x, sums);
  } else {
    sparse_rows<Vectors, kWide / kLanes>(count, rows, x, sums);
  }
}

// Four rows at a time, whose sums are made together where vectors are long enough: lanes are added
// up in pairs, which brings the sums of two rows into one vector.
#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void sums_of(const hn::Vec<Vectors>* rows, float* sums) {
  for (std::int64_t i = 0; i < 4; ++i) sums[i] = hn::GetLane(rows[i]);
}
#else
using Four = hn::CappedTag<float, 4>;
template <class Tag>
HWY_INLINE hn::Vec<Four> folded(hn::Vec<Tag> sum) {
  if constexpr (hn::MaxLanes(Tag()) > 4) {
    const hn::Half<Tag> half;
    return folded<hn::Half<Tag>>(hn::Add(hn::LowerHalf(half, sum), hn::UpperHalf(half, sum)));
  } else {
    return sum;
  }
}
HWY_INLINE hn::Vec<Four> pairs(hn::Vec<Four> a, hn::Vec<Four> b) {
  return hn::Add(hn::ConcatEven(Four(), b, a), hn::ConcatOdd(Four(), b, a));
}
HWY_INLINE void sums_of(const hn::Vec<Vectors>* rows, float* sums) {
  const auto low = pairs(folded<Vectors>(rows[0]), folded<Vectors>(rows[1]));
  const auto high = pairs(folded<Vectors>(rows[2]), folded<Vectors>(rows[3]));
  hn::StoreU(pairs(low, high), Four(), sums);
}
#endif

void dot(std::int64_t count, const std::uint16_t* HWY_RESTRICT list, const float* HWY_RESTRICT rows,
         const float* HWY_RESTRICT with, float* HWY_RESTRICT results) {
  const Vectors d;
  hn::Vec<Vectors> factors[kVectors];
#pragma GCC unroll 16
  for (std::int64_t v = 0; v < kVectors; ++v) factors[v] = hn::LoadU(d, with + v * kLanes);
  for (std::int64_t e = 0; e < count; e += 4) {
    hn::Vec<Vectors> sums[4];
#pragma GCC unroll 4
    for (std::int64_t i = 0; i < 4; ++i) {
      const float* const row = rows + list[e + i < count ? e + i : e] * kEventWidth;
      call_for(rows + list[e + i + 4 < count ? e + i + 4 : e] * kEventWidth);
      sums[i] = hn::Mul(factors[0], hn::LoadU(d, row));
#pragma GCC unroll 16
      for (std::int64_t v = 1; v < kVectors; ++v) {
        sums[i] = hn::MulAdd(factors[v], hn::LoadU(d, row + v * kLanes), sums[i]);
      }
    }
    float whole[4];
    sums_of(sums, whole);
    const std::int64_t here = count - e < 4 ? count - e : 4;
    for (std::int64_t i = 0; i < here; ++i) results[list[e + i]] += whole[i];
  }
}

}  // namespace ebb::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ebb {

HWY_EXPORT(add);
HWY_EXPORT(add_to);
HWY_EXPORT(dot);
HWY_EXPORT(sparse);

template <>
void add_weights(const EventList<float>& events, const float* weights, float* sums,
                 std::int64_t stride) {
  HWY_DYNAMIC_DISPATCH(add)(events, weights, sums, stride);
}
template <>
void add_to_weights(const EventList<float>& events, const float* d, float* weights) {
  HWY_DYNAMIC_DISPATCH(add_to)(events, d, weights);
}
template <>
void dot_rows(std::int64_t count, const std::uint16_t* list, const float* rows, const float* d,
              float* results) {
  HWY_DYNAMIC_DISPATCH(dot)(count, list, rows, d, results);
}
template <>
void add_sparse_product(std::int64_t count, const SparseRows<float>& rows, std::int64_t width,
                        const float* x, float* sums) {
  HWY_DYNAMIC_DISPATCH(sparse)(count, rows, width, x, sums);
}

// Double precision is for checks.
template <>
void add_weights(const EventList<double>& events, const double* weights, double* sums,
                 std::int64_t stride) {
  plain_add_weights(events, weights, sums, stride);
}
template <>
void add_to_weights(const EventList<double>& events, const double* d, double* weights) {
  plain_add_to_weights(events, d, weights);
}
template <>
void dot_rows(std::int64_t count, const std::uint16_t* list, const double* rows, const double* d,
              double* results) {
  plain_dot_rows(count, list, rows, d, results);
}
template <>
void add_sparse_product(std::int64_t count, const SparseRows<double>& rows, std::int64_t width,
                        const double* x, double* sums) {
  plain_add_sparse_product(count, rows, width, x, sums);
}

}  // namespace ebb
#endif
