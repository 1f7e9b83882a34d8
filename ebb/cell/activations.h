// SPDX-License-Identifier: Apache-2.0
// Exponentials as the cells use them: without branches, so that loops over units become vector
// code. Float is good to 2 units in the last place near 0 and to 1e-7 elsewhere; double is the
// standard library's.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace ebb {

// e^x = 2^power * (1 + rest), |rest| < 0.42
struct SplitExp {
  float two_to_power, rest;
};

inline SplitExp split_exp(float x) {
  constexpr float rounding = 12582912.0F;  // adding it leaves no bits below 1
  const float bounded = x < -87.0F ? -87.0F : (x > 88.0F ? 88.0F : x);
  const float power = (bounded * 1.44269504F + rounding) - rounding;
  const float r = (bounded - power * 0.693359375F) + power * 2.12194440e-4F;  // ln 2 in two parts
  float p = 1.0F / 5040;
  p = p * r + 1.0F / 720;
  p = p * r + 1.0F / 120;
  p = p * r + 1.0F / 24;
  p = p * r + 1.0F / 6;
  p = p * r + 0.5F;
  p = p * r + 1.0F;
  const auto exponent = static_cast<std::int32_t>(power) + 127;
  return {std::bit_cast<float>(exponent << 23), p * r};
}

inline float exponential(float x) {
  const SplitExp e = split_exp(x);
  return e.two_to_power * e.rest + e.two_to_power;
}
inline double exponential(double x) { return std::exp(x); }

template <class Number>
Number sigmoid(Number x) {
  return Number{1} / (Number{1} + exponential(-x));
}

// From e^2x - 1, whose relative error is small near 0 too.
inline float hyperbolic_tangent(float x) {
  const float bounded = x < -15.0F ? -15.0F : (x > 15.0F ? 15.0F : x);
  const SplitExp e = split_exp(2 * bounded);
  const float minus_one = e.two_to_power * e.rest + (e.two_to_power - 1.0F);
  return minus_one / (minus_one + 2.0F);
}
inline double hyperbolic_tangent(double x) { return std::tanh(x); }

}  // namespace ebb
