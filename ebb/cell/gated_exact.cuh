// SPDX-License-Identifier: Apache-2.0
// Floats that are multiplied as such by tensor cores, which round to tf32: each is the sum of two numbers that need no rounding but for its
// last bits. Of the four products of two such sums the least is left out.
//
// To be included after gated_numbers.cuh, or after what stands in for it.
#pragma once

#include <cstdint>

namespace ebb::gated {

struct Exact {
  float value;
};

// A float as two of tf32, whose numbers have 11 bits. An infinite one is all low: a high half would be multiplied with the other's low
// one too, which may be 0, and infinity times 0 is no number. Two infinite ones give none.
struct Halves {
  std::uint32_t high, low;

  explicit __device__ __forceinline__ Halves(std::uint32_t word)
      : high((word & 0x7FFFFFFFU) == 0x7F800000U ? 0U : word & 0xFFFFE000U),
        low(word_of(float_of(word) - float_of(high))) {}
};

template <>
struct Multiplied<Exact> {
  static __device__ __forceinline__ float to_float(Exact x) { return x.value; }
  static __device__ __forceinline__ Exact of_float(float x) { return {x}; }
  template <class X>
  static __device__ __forceinline__ X rounded(X x) {
    return x;
  }
  static __device__ __forceinline__ void multiply(float (&d)[4], std::uint32_t a0, std::uint32_t a1,
                                                  std::uint32_t a2, std::uint32_t a3,
                                                  std::uint32_t b0, std::uint32_t b1) {
    using Tf32 = Multiplied<float>;
    const Halves p(a0), q(a1), r(a2), s(a3), x(b0), y(b1);
    Tf32::multiply(d, p.low, q.low, r.low, s.low, x.high, y.high);
    Tf32::multiply(d, p.high, q.high, r.high, s.high, x.low, y.low);
    Tf32::multiply(d, p.high, q.high, r.high, s.high, x.high, y.high);
  }
};

}  // namespace ebb::gated
