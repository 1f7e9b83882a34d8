// SPDX-License-Identifier: Apache-2.0
// One segment of a gated cell, run by an emulation of a GPU and held against the same cell in double, time step by time step.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

// First the stand-in, then the kernels.
#include "tests/cell/emulated_gpu.h"
//
#include "ebb/cell/gated_exact.cuh"
#include "ebb/cell/gated_kernels.cuh"
#include "ebb/cell/gated_recall.cuh"

namespace ebb::gated::emulated {

struct Case {
  int steps, batch, hidden, teams;
  bool backwards = false;
};

// Arrays of one segment, and what its kernels make of them.
template <class Cell, class T>
class Emulated {
 public:
  static constexpr int kGates = Cell::kGates;
  using Of = Kept<Cell>;

  explicit Emulated(const Case& c) : c_(c) {
    const int rows = c.steps * c.batch, state = c.batch * c.hidden;
    fill(weights, kGates * c.hidden * c.hidden, 2 / std::sqrt(static_cast<float>(c.hidden)));
    fill(bias, c.hidden, 1);
    fill(given, rows * kGates * c.hidden, 2);
    fill(before, state, 2);
    fill(outputs_gradient, rows * c.hidden, 1);
    for (auto* of : {&field_before, &after_gradient, &field_gradient}) fill(*of, state);
    if (Of::kHeard) fill(thresholds, c.hidden);
    if (Of::kField == 0) {
      for (std::size_t i = 0; i < before.size(); ++i)
        before[i] = Multiplied<T>::of_float(field_before[i]);
    }
    gates = given;
    poison(outputs, rows * c.hidden);
    poison(products, rows * c.hidden);
    poison(sums_gradient, rows * kGates * c.hidden);
    poison(inputs_gradient, rows * kGates * c.hidden);
    fields.resize(outputs.size());
    for (auto* of : {&field_after, &before_gradient, &field_before_gradient, &thresholds_gradient})
      of->resize(field_before.size());
  }

  // Without the last blocks of units, if so many are missing. Samples are run `at_a_time`, if not all together.
  template <int units, int slices, int kept = 0>
  void run(int missing = 0) {
    Segment s;
    s.steps = c_.steps;
    s.batch = c_.batch;
    s.hidden = c_.hidden;
    s.teams = c_.teams;
    s.backwards = c_.backwards;
    s.patience = missing > 0 ? 100 : 1LL << 40;
    s.gave_up = &gave_up;
    if (in_place) field_after = field_before;
    ForwardOf<Cell, T> f{};
    static_cast<Forward<T>&>(f) = {weights.data(),
                                   bias.data(),
                                   gates.data(),
                                   before.data(),
                                   in_place ? field_after.data() : field_before.data(),
                                   outputs.data(),
                                   field_after.data(),
                                   fields.data(),
                                   products.data()};
    if constexpr (Kept<Cell>::kHeard) f.thresholds = thresholds.data();
    const int each = c_.teams * slices * kSlice, x = (c_.hidden + units - 1) / units - missing;
    const auto run_parts = [&](int shared, const auto& kernel) {
      for (s.first = 0; s.first < c_.batch; s.first = s.end) {
        s.end = at_a_time > 0 ? std::min(c_.batch, s.first + at_a_time) : c_.batch;
        run_grid(x, (s.end - s.first + each - 1) / each, c_.teams * kTeam, shared, kernel);
      }
    };
    run_parts(forward_shared<Cell, T>(units, c_.hidden, c_.teams, kept),
              [&] { forward<Cell, T, units, slices, kept, true>(s, f); });
    if (gave_up != 0) return;
    if (recalls) recall_all(s);
    BackwardOf<Cell, T> b{};
    static_cast<Backward<T>&>(b) = {
        weights.data(),
        recalls && Cell::kSaved == 0 ? nullptr : gates.data(),
        fields.data(),
        products.data(),
        outputs.data(),
        before.data(),
        field_before.data(),
        outputs_gradient.data(),
        after_gradient.data(),
        field_gradient.data(),
        sums_gradient.data(),
        over_gates ? gates.data() : inputs_gradient.data(),
        in_place ? after_gradient.data() : before_gradient.data(),
        in_place ? field_gradient.data() : field_before_gradient.data()};
    if constexpr (Kept<Cell>::kHeard) {
      b.thresholds = thresholds.data();
      b.thresholds_gradient = of_thresholds ? thresholds_gradient.data() : nullptr;
      b.surrogate = surrogate;
      b.sharpness = sharpness;
    }
    run_parts(backward_shared<Cell, T>(units, c_.hidden, c_.teams, kept),
              [&] { backward<Cell, T, units, slices, kept * kGates>(s, b); });
  }

  // Every result against double, within `exact` where sums are in float and `rounded` where T rounds on the way.
  void expect_right(double exact, double rounded) const {
    for (int b = 0; b < c_.batch; ++b) expect_sample(b, exact, rounded);
  }

  int gave_up = 0, at_a_time = 0;
  bool over_gates = false;  // the gradients of the inputs' sums go where the gates are
  bool in_place = false;    // states after go where those before are, gradients the other way round
  bool recalls = false;     // what was recorded is found again from the outputs
  bool of_thresholds = true;  // their gradients are wanted
  Surrogate surrogate = Surrogate::arctan;
  float sharpness = 2;
  std::vector<T> weights, bias, given, before, outputs_gradient, gates, outputs, products,
      sums_gradient, inputs_gradient, recorded;
  std::vector<float> field_before, after_gradient, field_gradient, fields, field_after,
      before_gradient, field_before_gradient, thresholds, thresholds_gradient, recorded_fields;

  // The share of outputs that are heard.
  double rate() const {
    double heard = 0;
    for (const T& output : outputs) heard += Multiplied<T>::to_float(output) != 0 ? 1 : 0;
    return heard / static_cast<double>(outputs.size());
  }

 private:
  // Makes the sums as products outside of the kernels do, and runs the kernel over them.
  void recall_all(const Segment& s) {
    recorded = gates;
    recorded_fields = fields;
    gates = given;
    if (Of::kApart) poison(products, static_cast<int>(products.size()));
    std::memset(fields.data(), 0xFF, fields.size() * sizeof(float));
    const auto hidden = static_cast<std::size_t>(c_.hidden);
    for (std::size_t i = 0; i < gates.size(); ++i) {
      const std::size_t row = i / (kGates * hidden), k = i % (kGates * hidden);
      const std::size_t b = row % static_cast<std::size_t>(c_.batch);
      const auto time = static_cast<int>(row / static_cast<std::size_t>(c_.batch));
      const int t = c_.backwards ? c_.steps - 1 - time : time;
      const T* const h = t == 0 ? &before[b * hidden] : &outputs[(s.at(t - 1) + b) * hidden];
      float sum = 0;
      for (std::size_t j = 0; j < hidden; ++j)
        sum += Multiplied<T>::to_float(weights[k * hidden + j]) * Multiplied<T>::to_float(h[j]);
      const bool apart = Of::kApart && k >= (kGates - 1) * hidden;
      T& to = apart ? products[row * hidden + k % hidden] : gates[i];
      to = Multiplied<T>::of_float(sum + Multiplied<T>::to_float(apart ? bias[k % hidden] : to));
    }
    const Recall<T> io{gates.data(), products.data(), field_before.data(), fields.data()};
    if constexpr (Cell::kSaved > 0 && !Of::kHeard) {
      run_grid(static_cast<int>(recall_blocks<Cell>(s)), 1, kRecallThreads, 0,
               [&] { recall<Cell, T>(s, io); });
    }
  }

  void fill(std::vector<T>& to, int count, float scale) {
    to.resize(static_cast<std::size_t>(count));
    for (T& x : to) x = Multiplied<T>::of_float(scale * random_(engine_));
  }
  void fill(std::vector<float>& to, int count) {
    to.resize(static_cast<std::size_t>(count));
    for (float& x : to) x = random_(engine_);
  }
  static void poison(std::vector<T>& to, int count) {
    to.resize(static_cast<std::size_t>(count));
    std::memset(to.data(), 0xFF, to.size() * sizeof(T));
  }
  static double number(const std::vector<T>& of, std::size_t i) {
    return static_cast<double>(Multiplied<T>::to_float(of[i]));
  }

  // As the kernel hears it: within a last bit of the threshold it may be on the other side.
  static void hear_as(double output, double threshold, double near, std::array<double, 2>& to) {
    const bool heard = output != 0;
    if (heard == (to[1] >= threshold)) return;
    ASSERT_NEAR(to[1], threshold, near);
    to[1] = heard ? threshold : std::nextafter(threshold, -1e30);
    to[0] = heard ? to[1] : 0;
  }

  void expect_sample(int sample, double exact, double rounded) const {
    const auto hidden = static_cast<std::size_t>(c_.hidden), b = static_cast<std::size_t>(sample);
    const auto row = [&](int t) {
      return static_cast<std::size_t>((c_.backwards ? c_.steps - 1 - t : t) * c_.batch) + b;
    };
    struct Step {
      std::vector<double> before, after, saved;  // [2H], [2H], [4H]
    };
    std::vector<Step> steps(static_cast<std::size_t>(c_.steps));
    std::vector<double> h(hidden), state(2 * hidden);
    for (std::size_t u = 0; u < hidden; ++u) {
      h[u] = number(before, b * hidden + u);
      state[u] = Of::kField == 0 ? static_cast<double>(field_before[b * hidden + u]) : h[u];
      state[hidden + u] = static_cast<double>(field_before[b * hidden + u]);
    }
    for (int t = 0; t < c_.steps; ++t) {
      Step& step = steps[static_cast<std::size_t>(t)];
      step = {state, std::vector<double>(2 * hidden), std::vector<double>(4 * hidden)};
      for (std::size_t u = 0; u < hidden; ++u) {
        std::array<double, 4> sums{}, saved{};
        for (std::size_t k = 0; k < kGates; ++k) {
          double product = 0;
          for (std::size_t j = 0; j < hidden; ++j)
            product += number(weights, (k * hidden + u) * hidden + j) * h[j];
          sums[k] = number(given, (row(t) * kGates + k) * hidden + u);
          if (Of::kApart && k == kGates - 1) {
            sums[3] = product + number(bias, u);
          } else {
            sums[k] += product;
          }
        }
        std::array<double, 2> from{state[u], state[hidden + u]}, to{};
        const double threshold = Of::kHeard ? static_cast<double>(thresholds[u]) : 0;
        UnitForward<double> unit{sums.data(), from.data(),  0, &threshold,
                                 to.data(),   saved.data(), 0};
        Cell::forward(unit, Constants<double>());
        if (Of::kHeard) hear_as(number(outputs, row(t) * hidden + u), threshold, exact, to);
        for (std::size_t k = 0; k < 4; ++k) step.saved[k * hidden + u] = saved[k];
        for (std::size_t k = 0; k < 2; ++k) step.after[k * hidden + u] = to[k];
        ASSERT_NEAR(number(outputs, row(t) * hidden + u), to[0], rounded)
            << "step " << t << " unit " << u;
      }
      state = step.after;
      // The next product is made with what was handed on.
      for (std::size_t u = 0; u < hidden; ++u) {
        h[u] = number(outputs, row(t) * hidden + u);
        if (Of::kHeard) state[u] = h[u];
      }
    }
    if (Of::kField >= 0) {
      for (std::size_t u = 0; u < hidden; ++u) {
        ASSERT_NEAR(static_cast<double>(field_after[b * hidden + u]),
                    state[(Of::kField == 1 ? hidden : 0) + u], exact);
      }
    }
    std::vector<double> output(hidden), of_field(hidden), of_sums(kGates * hidden),
        of_threshold(hidden);
    for (std::size_t u = 0; u < hidden; ++u) {
      output[u] = static_cast<double>(after_gradient[b * hidden + u]);
      of_field[u] = static_cast<double>(field_gradient[b * hidden + u]);
    }
    for (int t = c_.steps - 1; t >= 0; --t) {
      const Step& step = steps[static_cast<std::size_t>(t)];
      std::vector<double> carried(hidden);
      for (std::size_t u = 0; u < hidden; ++u) {
        std::array<double, 2> from{step.before[u], step.before[hidden + u]},
            to{step.after[u], step.after[hidden + u]};
        std::array<double, 2> adjoint{0, of_field[u]};
        std::array<double, 4> saved{}, sums{};
        const double threshold = Of::kHeard ? static_cast<double>(thresholds[u]) : 0;
        const double slope =
            Of::kHeard ? slope_at(surrogate, to[1] - threshold, static_cast<double>(sharpness)) : 0;
        for (std::size_t k = 0; k < 4; ++k) saved[k] = step.saved[k * hidden + u];
        UnitBackward<double> unit{from.data(),
                                  to.data(),
                                  saved.data(),
                                  0,
                                  slope,
                                  &threshold,
                                  output[u] + number(outputs_gradient, row(t) * hidden + u),
                                  adjoint.data(),
                                  sums.data(),
                                  &of_threshold[u]};
        Cell::backward(unit, Constants<double>());
        carried[u] = unit.output;
        of_field[u] = adjoint[1];
        for (std::size_t k = 0; k < kGates; ++k) {
          const std::size_t at = (row(t) * kGates + k) * hidden + u;
          of_sums[k * hidden + u] = sums[Of::kApart && k == kGates - 1 ? 3 : k];
          ASSERT_NEAR(number(sums_gradient, at), of_sums[k * hidden + u], rounded)
              << "step " << t << " unit " << u;
          if (Of::kApart) {
            ASSERT_NEAR(number(inputs_gradient, at), sums[k], rounded);
          }
        }
      }
      for (std::size_t j = 0; j < hidden; ++j) {
        output[j] = carried[j];
        for (std::size_t r = 0; r < kGates * hidden; ++r)
          output[j] += of_sums[r] * number(weights, r * hidden + j);
      }
    }
    for (std::size_t u = 0; u < hidden; ++u) {
      ASSERT_NEAR(static_cast<double>(before_gradient[b * hidden + u]), output[u], rounded);
      if (Of::kFields) {
        ASSERT_NEAR(static_cast<double>(field_before_gradient[b * hidden + u]), of_field[u],
                    rounded);
      }
      if (Of::kHeard && of_thresholds) {
        ASSERT_NEAR(static_cast<double>(thresholds_gradient[b * hidden + u]), of_threshold[u],
                    rounded);
      }
    }
  }

  Case c_;
  std::mt19937 engine_{7};
  std::uniform_real_distribution<float> random_{-0.5F, 0.5F};
};

}  // namespace ebb::gated::emulated
