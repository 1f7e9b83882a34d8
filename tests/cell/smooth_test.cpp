// SPDX-License-Identifier: Apache-2.0
// The mathematics of each cell, unit by unit, against finite differences. A spike has no derivative:
// here a logistic curve stands for it, and its true derivative for the surrogate, so that backward
// must be the derivative of forward.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>

#include "ebb/cell/cell_table.h"
#include "ebb/core/random.h"

namespace ebb::test {

struct Smooth {
  double value = 0;
  Smooth() = default;
  Smooth(double v) : value(v) {}  // NOLINT(google-explicit-constructor): as a number is
  Smooth& operator+=(Smooth o) { return *this = value + o.value; }
  Smooth& operator-=(Smooth o) { return *this = value - o.value; }
  Smooth& operator*=(Smooth o) { return *this = value * o.value; }
};
inline Smooth operator+(Smooth a, Smooth b) { return a.value + b.value; }
inline Smooth operator-(Smooth a, Smooth b) { return a.value - b.value; }
inline Smooth operator*(Smooth a, Smooth b) { return a.value * b.value; }
inline Smooth operator/(Smooth a, Smooth b) { return a.value / b.value; }
inline Smooth operator-(Smooth a) { return -a.value; }
inline bool operator>(Smooth a, Smooth b) { return a.value > b.value; }
inline bool operator<(Smooth a, Smooth b) { return a.value < b.value; }
inline bool operator>=(Smooth a, Smooth b) { return a.value >= b.value; }
inline bool operator<=(Smooth a, Smooth b) { return a.value <= b.value; }
inline Smooth exponential(Smooth x) { return std::exp(x.value); }
inline Smooth hyperbolic_tangent(Smooth x) { return std::tanh(x.value); }
constexpr double kSteep = 4;
inline Smooth step(Smooth x) { return 1 / (1 + std::exp(-kSteep * x.value)); }
template <Surrogate>
Smooth psi(Smooth x, Smooth) {
  const double s = step(x).value;
  return kSteep * s * (1 - s);
}

}  // namespace ebb::test

namespace ebb::test::smooth_test {
namespace {

// All that a unit depends on: sums, fields, the spike before, parameters.
using Point = std::array<double, 16>;
constexpr std::size_t kSums = 0, kBefore = 4, kSpike = 8, kParameters = 9;

template <class Math>
struct Unit {
  std::array<Smooth, 5> sums, before, parameters, after, saved;
  Smooth spike;

  Unit(const Point& x, const Constants<Smooth>& constants) {
    for (std::size_t i = 0; i < 4; ++i) {
      sums[i] = x[kSums + i];
      before[i] = x[kBefore + i];
    }
    for (std::size_t i = 0; i < 5; ++i) parameters[i] = x[kParameters + i];
    UnitForward<Smooth> u{sums.data(),
                          before.data(),
                          Smooth(x[kSpike]),
                          parameters.data(),
                          after.data(),
                          saved.data(),
                          0};
    Math::forward(u, constants);
    spike = u.spike;
  }
  double loss(const std::array<double, 5>& weights) const {
    double sum = Math::kSpikes ? weights[4] * spike.value : 0;
    for (int f = 0; f < Math::kFields; ++f) {
      sum += weights[static_cast<std::size_t>(f)] * after[static_cast<std::size_t>(f)].value;
    }
    return sum;
  }
};

template <class Math>
Point gradient(const Point& x, const Constants<Smooth>& constants,
               const std::array<double, 5>& weights) {
  Unit<Math> unit(x, constants);
  std::array<Smooth, 5> adjoint, sums, of_parameters;
  for (std::size_t f = 0; f < 4; ++f) adjoint[f] = weights[f];
  Smooth slope = 0;
  if constexpr (Math::kEvents) {
    slope = psi<Surrogate::arctan>(
        Math::distance(unit.saved.data(), unit.after.data(), unit.parameters.data()),
        constants.sharpness);
  }
  UnitBackward<Smooth> u{unit.before.data(),
                         unit.after.data(),
                         unit.saved.data(),
                         Smooth(x[kSpike]),
                         slope,
                         unit.parameters.data(),
                         Math::kSpikes ? weights[4] : weights[0],
                         adjoint.data(),
                         sums.data(),
                         of_parameters.data()};
  Math::backward(u, constants);
  Point result{};
  for (std::size_t i = 0; i < Math::kSums; ++i) result[kSums + i] = sums[i].value;
  for (std::size_t i = 0; i < Math::kFields; ++i) result[kBefore + i] = adjoint[i].value;
  for (std::size_t i = 0; i < Math::kParameters; ++i)
    result[kParameters + i] = of_parameters[i].value;
  result[Math::kSpikes ? kSpike : kBefore] = u.output.value;
  return result;
}

template <class Math>
void expect_derivative(const CellFacts& cell, const Constants<Smooth>& constants) {
  SCOPED_TRACE(cell.name);
  for (std::uint64_t trial = 0; trial < 50; ++trial) {
    const Random random(trial);
    Point x{};
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = random.normal(i);
    x[kSpike] = random.uniform(100);
    // Decays are between 0 and 1.
    for (std::size_t i = 1; i < 5; ++i) x[kParameters + i] = 0.1 + 0.8 * random.uniform(101 + i);
    if (Math::kParameters == 1) x[kParameters] = 0.1 + 0.8 * random.uniform(120);
    std::array<double, 5> weights{};
    for (std::size_t i = 0; i < 5; ++i) weights[i] = random.normal(200 + i);
    const Point found = gradient<Math>(x, constants, weights);
    for (std::size_t i = 0; i < kParameters + Math::kParameters; ++i) {
      // Differences of two widths, combined so that the error of the first order is gone.
      const auto difference = [&](double width) {
        Point up = x, down = x;
        up[i] += width;
        down[i] -= width;
        return (Unit<Math>(up, constants).loss(weights) -
                Unit<Math>(down, constants).loss(weights)) /
               (2 * width);
      };
      const double right = (4 * difference(5e-4) - difference(1e-3)) / 3;
      ASSERT_NEAR(found[i], right, 1e-8 * std::max(1.0, std::abs(right)))
          << "trial " << trial << ", input " << i;
    }
  }
}

TEST(Smooth, EveryCell) {
  for (const double hard : {0, 1}) {
    for (const double normalised : {0, 1}) {
      Constants<Smooth> constants;
      constants.hard = hard;
      constants.normalised = normalised;
      constants.attached = 1;
      constants.rest = 0.2;
      with_cells([&]<class... Math>(const CellEntry<Math>&... cell) {
        (expect_derivative<Math>(cell, constants), ...);
      });
    }
  }
}

}  // namespace
}  // namespace ebb::test::smooth_test
