// SPDX-License-Identifier: Apache-2.0
// Exponentials as the cells use them: without branches, so that loops over units become vector
// code. Errors of float: 1.2e-7 of the value of an exponential, 1.2e-7 in a sigmoid, 1.7e-7 in a
// tangent and, below 0.5, 3 units in the last place; double is the standard library's.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

// Cells are compiled for GPUs too.
#ifdef __CUDACC__
#define EBB_DEVICE __host__ __device__
#else
#define EBB_DEVICE
#endif

namespace ebb {

// The nearest number in [low,high]; what is no number stays. One test at a time, each with the bound
// first: that is one instruction of a vector, which a chain of tests is not.
inline float bounded(float x, float low, float high) {
  const float below = high < x ? high : x;
  return low > below ? low : below;
}

// e^x = 2^power * (1 + rest), |rest| < 0.42
struct SplitExp {
  float two_to_power, rest;
};

// x from -87 to 88.
inline SplitExp split_exp(float x) {
  constexpr float rounding = 12582912.0F;  // adding it leaves no bits below 1
  const float shifted = x * 1.44269504F + rounding;
  const float power = shifted - rounding;
  const float r = (x - power * 0.693359375F) + power * 2.12194440e-4F;  // ln 2 in two parts
  float p = 1.0F / 5040;
  p = p * r + 1.0F / 720;
  p = p * r + 1.0F / 120;
  p = p * r + 1.0F / 24;
  p = p * r + 1.0F / 6;
  p = p * r + 0.5F;
  p = p * r + 1.0F;
  // The power is in the last bits of the sum; of those above it none are left when it is in place.
  const std::uint32_t exponent = (std::bit_cast<std::uint32_t>(shifted) + 127) << 23;
  return {std::bit_cast<float>(exponent), p * r};
}

inline EBB_DEVICE float exponential(float x) {
#ifdef __CUDA_ARCH__
  return __expf(x);
#else
  const SplitExp e = split_exp(bounded(x, -87.0F, 88.0F));
  return e.two_to_power * e.rest + e.two_to_power;
#endif
}
inline EBB_DEVICE double exponential(double x) { return std::exp(x); }

template <class Number>
EBB_DEVICE Number sigmoid(Number x) {
#ifdef __CUDA_ARCH__
  return __fdividef(1.0F, 1.0F + __expf(-x));
#else
  return Number{1} / (Number{1} + exponential(-x));
#endif
}

// From e^2x - 1, whose relative error is small near 0 too. On a GPU a series near 0, good to 5e-7 everywhere.
inline EBB_DEVICE float hyperbolic_tangent(float x) {
#ifdef __CUDA_ARCH__
  const float s = x * x;
  const float near =
      x + x * s * (-1.0F / 3 + s * (2.0F / 15 + s * (-17.0F / 315 + s * (62.0F / 2835))));
  return fabsf(x) < 0.25F ? near : 1.0F - __fdividef(2.0F, 1.0F + __expf(2 * x));
#else
  const SplitExp e = split_exp(2 * bounded(x, -15.0F, 15.0F));
  const float minus_one = e.two_to_power * e.rest + (e.two_to_power - 1.0F);
  return minus_one / (minus_one + 2.0F);
#endif
}
inline double hyperbolic_tangent(double x) { return std::tanh(x); }

}  // namespace ebb
