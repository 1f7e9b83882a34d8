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

void add(std::int64_t count, const std::uint16_t* HWY_RESTRICT list,
         const float* HWY_RESTRICT values, const float* HWY_RESTRICT rows,
         float* HWY_RESTRICT sums) {
  const Vectors d;
  hn::Vec<Vectors> in_registers[kVectors];
#pragma GCC unroll 16
  for (std::int64_t v = 0; v < kVectors; ++v) in_registers[v] = hn::LoadU(d, sums + v * kLanes);
  for (std::int64_t e = 0; e < count; ++e) {
    const float* const row = rows + list[e] * kEventWidth;
    call_for(rows + list[e + kAhead < count ? e + kAhead : e] * kEventWidth);
    if (values == nullptr) {
#pragma GCC unroll 16
      for (std::int64_t v = 0; v < kVectors; ++v) {
        in_registers[v] = hn::Add(in_registers[v], hn::LoadU(d, row + v * kLanes));
      }
    } else {
      const auto value = hn::Set(d, values[e]);
#pragma GCC unroll 16
      for (std::int64_t v = 0; v < kVectors; ++v) {
        in_registers[v] = hn::MulAdd(value, hn::LoadU(d, row + v * kLanes), in_registers[v]);
      }
    }
  }
#pragma GCC unroll 16
  for (std::int64_t v = 0; v < kVectors; ++v) hn::StoreU(in_registers[v], d, sums + v * kLanes);
}

void add_to(std::int64_t count, const std::uint16_t* HWY_RESTRICT list,
            const float* HWY_RESTRICT values, const float* HWY_RESTRICT what,
            float* HWY_RESTRICT rows) {
  const Vectors d;
  hn::Vec<Vectors> in_registers[kVectors];
#pragma GCC unroll 16
  for (std::int64_t v = 0; v < kVectors; ++v) in_registers[v] = hn::LoadU(d, what + v * kLanes);
  for (std::int64_t e = 0; e < count; ++e) {
    float* const row = rows + list[e] * kEventWidth;
    call_for(rows + list[e + kAhead < count ? e + kAhead : e] * kEventWidth);
    const auto value = hn::Set(d, values == nullptr ? 1.F : values[e]);
#pragma GCC unroll 16
    for (std::int64_t v = 0; v < kVectors; ++v) {
      float* const to = row + v * kLanes;
      hn::StoreU(hn::MulAdd(value, in_registers[v], hn::LoadU(d, to)), d, to);
    }
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

template <>
void add_rows(std::int64_t count, const std::uint16_t* list, const float* values, const float* rows,
              float* sums) {
  HWY_DYNAMIC_DISPATCH(add)(count, list, values, rows, sums);
}
template <>
void add_to_rows(std::int64_t count, const std::uint16_t* list, const float* values, const float* d,
                 float* rows) {
  HWY_DYNAMIC_DISPATCH(add_to)(count, list, values, d, rows);
}
template <>
void dot_rows(std::int64_t count, const std::uint16_t* list, const float* rows, const float* d,
              float* results) {
  HWY_DYNAMIC_DISPATCH(dot)(count, list, rows, d, results);
}

// Double precision is for checks.
template <>
void add_rows(std::int64_t count, const std::uint16_t* list, const double* values,
              const double* rows, double* sums) {
  plain_add_rows(count, list, values, rows, sums);
}
template <>
void add_to_rows(std::int64_t count, const std::uint16_t* list, const double* values,
                 const double* d, double* rows) {
  plain_add_to_rows(count, list, values, d, rows);
}
template <>
void dot_rows(std::int64_t count, const std::uint16_t* list, const double* rows, const double* d,
              double* results) {
  plain_dot_rows(count, list, rows, d, results);
}

}  // namespace ebb
#endif
