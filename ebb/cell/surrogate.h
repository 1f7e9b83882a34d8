// SPDX-License-Identifier: Apache-2.0
// What stands in for the derivative of a spike: psi(x), x the distance to the threshold.
#pragma once

#include <numbers>

#include "ebb/cell/activations.h"

namespace ebb {

enum class Surrogate { fast_sigmoid, superspike, arctan, triangular, boxcar, multi_gaussian };

// Whether a membrane that is `x` above its threshold fires. Backward asks again, so one function.
template <class Number>
EBB_DEVICE Number step(Number x) {
  return x >= Number{0} ? Number{1} : Number{0};
}

// `k` is the number that the table of surrogates (cell.h) names and explains.
template <Surrogate kind, class Number>
EBB_DEVICE Number psi(Number x, Number k) {
  const Number away = x < Number{0} ? -x : x;
  if constexpr (kind == Surrogate::fast_sigmoid) {
    const Number base = Number{1} + k * away;
    return Number{1} / (base * base);
  } else if constexpr (kind == Surrogate::superspike) {
    const Number base = Number{1} + away;
    return k / (base * base);
  } else if constexpr (kind == Surrogate::arctan) {
    const Number scaled = std::numbers::pi_v<Number> / 2 * k * x;
    return k / 2 / (Number{1} + scaled * scaled);
  } else if constexpr (kind == Surrogate::triangular) {
    return away < Number{1} ? k * (Number{1} - away) : Number{0};
  } else if constexpr (kind == Surrogate::boxcar) {
    return away <= k ? Number{1} : Number{0};
  } else {
    // Yin, Corradi, Bohte 2021: one bell less two wide ones beside it.
    constexpr Number height = Number(0.15), wide = Number(6), share = Number(0.5);
    const auto bell = [](Number y, Number sigma) {
      const Number z = y / sigma;
      return exponential(Number(-0.5) * z * z) * std::numbers::inv_sqrtpi_v<Number> /
             (std::numbers::sqrt2_v<Number> * sigma);
    };
    return share * ((Number{1} + height) * bell(x, k) -
                    height * (bell(x - k, wide * k) + bell(x + k, wide * k)));
  }
}

// psi of a kind that is known when it runs.
template <class Number>
EBB_DEVICE Number slope_at(Surrogate kind, Number distance, Number sharpness) {
  if (kind == Surrogate::fast_sigmoid) return psi<Surrogate::fast_sigmoid>(distance, sharpness);
  if (kind == Surrogate::superspike) return psi<Surrogate::superspike>(distance, sharpness);
  if (kind == Surrogate::arctan) return psi<Surrogate::arctan>(distance, sharpness);
  if (kind == Surrogate::triangular) return psi<Surrogate::triangular>(distance, sharpness);
  if (kind == Surrogate::boxcar) return psi<Surrogate::boxcar>(distance, sharpness);
  return psi<Surrogate::multi_gaussian>(distance, sharpness);
}

}  // namespace ebb
