// SPDX-License-Identifier: Apache-2.0
// The sums of event_sums.h with all columns in registers, compiled for each vector instruction set
// and chosen at run time.
#include "ebb/device/event_sums_plain.h"

// Vectors whose length is not known when compiling cannot be in arrays.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ebb/device/event_sums_hwy.cpp"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace ebb::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Vectors = hn::ScalableTag<float>;
constexpr std::int64_t kLanes = HWY_MAX_BYTES / static_cast<std::int64_t>(sizeof(float));
constexpr std::int64_t kVectors = kEventWidth / kLanes;

void add(std::int64_t count, const std::uint16_t* HWY_RESTRICT list,
         const float* HWY_RESTRICT values, const EventRows<float>& rows, float* HWY_RESTRICT sums) {
  const Vectors d;
  hn::Vec<Vectors> in_registers[kVectors];
#pragma GCC unroll 16
  for (std::int64_t v = 0; v < kVectors; ++v) in_registers[v] = hn::LoadU(d, sums + v * kLanes);
  if (values == nullptr) {
    for (std::int64_t e = 0; e < count; ++e) {
      const float* const row = rows.data + list[e] * rows.stride;
#pragma GCC unroll 16
      for (std::int64_t v = 0; v < kVectors; ++v) {
        in_registers[v] = hn::Add(in_registers[v], hn::LoadU(d, row + v * kLanes));
      }
    }
  } else {
    for (std::int64_t e = 0; e < count; ++e) {
      const float* const row = rows.data + list[e] * rows.stride;
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

void dot(std::int64_t count, const std::uint16_t* HWY_RESTRICT list, const EventRows<float>& rows,
         const float* HWY_RESTRICT with, float* HWY_RESTRICT results) {
  const Vectors d;
  hn::Vec<Vectors> factors[kVectors];
#pragma GCC unroll 16
  for (std::int64_t v = 0; v < kVectors; ++v) factors[v] = hn::LoadU(d, with + v * kLanes);
  for (std::int64_t e = 0; e < count; ++e) {
    const float* const row = rows.data + list[e] * rows.stride;
    // Three chains, so that one addition need not wait for the one before it.
    hn::Vec<Vectors> sums[3];
#pragma GCC unroll 3
    for (std::int64_t v = 0; v < 3; ++v) {
      sums[v] = hn::Mul(factors[v], hn::LoadU(d, row + v * kLanes));
    }
#pragma GCC unroll 16
    for (std::int64_t v = 3; v < kVectors; ++v) {
      sums[v % 3] = hn::MulAdd(factors[v], hn::LoadU(d, row + v * kLanes), sums[v % 3]);
    }
    results[list[e]] += hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sums[0], sums[1]), sums[2])));
  }
}

}  // namespace ebb::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ebb {

HWY_EXPORT(add);
HWY_EXPORT(dot);

template <>
void add_rows(std::int64_t count, const std::uint16_t* list, const float* values,
              const EventRows<float>& rows, float* sums) {
  HWY_DYNAMIC_DISPATCH(add)(count, list, values, rows, sums);
}
template <>
void dot_rows(std::int64_t count, const std::uint16_t* list, const EventRows<float>& rows,
              const float* d, float* results) {
  HWY_DYNAMIC_DISPATCH(dot)(count, list, rows, d, results);
}

// Double precision is for checks.
template <>
void add_rows(std::int64_t count, const std::uint16_t* list, const double* values,
              const EventRows<double>& rows, double* sums) {
  plain_add_rows(count, list, values, rows, sums);
}
template <>
void dot_rows(std::int64_t count, const std::uint16_t* list, const EventRows<double>& rows,
              const double* d, double* results) {
  plain_dot_rows(count, list, rows, d, results);
}

}  // namespace ebb
#endif
