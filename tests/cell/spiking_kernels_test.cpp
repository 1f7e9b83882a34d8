// SPDX-License-Identifier: Apache-2.0
// The kernels of spiking cells, run by an emulation of a GPU: against the same cells in double, time step by time step.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

// First the stand-in, then the kernels.
#include "tests/cell/emulated_gpu.h"
//
#include "ebb/cell/gated_exact.cuh"
#include "ebb/cell/gated_kernels.cuh"
#include "ebb/cell/gated_recall.cuh"
//
#include "ebb/cell/spiking_kernels.cuh"
//
#include "ebb/cell/spiking_apart.cuh"

namespace ebb::gated {
namespace {

struct Case {
  int steps, batch, hidden, teams;
  bool hard = false, attached = false, normalised = true;
  Surrogate surrogate = Surrogate::fast_sigmoid;
  float sharpness = 5;
  bool apart = false;  // no recurrent weights
  bool bare = false;   // outputs have no gradient, and nobody wants those of parameters
};

// Arrays of one segment, and what its kernels make of them.
template <class Cell, class T>
class Emulated {
 public:
  static constexpr std::size_t kFields = Cell::kFields, kKept = Remains<Cell>::kKept,
                               kParameters = Cell::kParameters;

  explicit Emulated(const Case& c)
      : c_(c),
        hidden_(static_cast<std::size_t>(c.hidden)),
        state_(static_cast<std::size_t>(c.batch * c.hidden)),
        rows_(static_cast<std::size_t>(c.steps) * state_) {
    for (std::size_t i = 0; i < hidden_ * hidden_; ++i)
      weights.push_back(
          number(c.apart ? 0.F : random() * 4 / std::sqrt(static_cast<float>(c.hidden))));
    for (std::size_t i = 0; i < kParameters * hidden_; ++i)
      parameters.push_back(0.6F + 0.5F * random());  // threshold, decays, beta
    for (std::size_t i = 0; i < rows_; ++i) {
      given.push_back(number(3 * random() + 1));
      outputs_gradient.push_back(number(c.bare ? 0.F : random()));
    }
    for (std::size_t i = 0; i < state_; ++i) {
      before.push_back(number(random() > 0 ? 1.F : 0.F));
      after_gradient.push_back(random());
    }
    for (std::size_t i = 0; i < kFields * state_; ++i) {
      fields_before.push_back(random());
      fields_gradient.push_back(random());
    }
    outputs.resize(rows_);
    sums_gradient.resize(rows_);
    std::memset(static_cast<void*>(outputs.data()), 0xFF, rows_ * sizeof(T));
    std::memset(static_cast<void*>(sums_gradient.data()), 0xFF, rows_ * sizeof(T));
    const float nan = std::numeric_limits<float>::quiet_NaN();
    fields_after.assign(kFields * state_, nan);
    kept.assign(kKept * rows_, nan);
    before_gradient.assign(state_, nan);
    fields_before_gradient.assign(kFields * state_, nan);
    parameters_gradient.assign(kParameters * state_, nan);
    neurons.constants.hard = c.hard ? 1 : 0;
    neurons.constants.attached = c.attached ? 1 : 0;
    neurons.constants.normalised = c.normalised ? 1 : 0;
    neurons.constants.sharpness = c.sharpness;
    neurons.surrogate = c.surrogate;
  }

  // Without the last block of units, if it is missing.
  template <int units, int slices>
  void run(int missing = 0) {
    Segment s;
    s.steps = c_.steps;
    s.end = s.batch = c_.batch;
    s.hidden = c_.hidden;
    s.teams = c_.teams;
    s.patience = missing > 0 ? 100 : 1LL << 40;
    s.gave_up = &gave_up;
    const int each = c_.teams * slices * kSlice, x = c_.hidden / units - missing,
              y = (c_.batch + each - 1) / each;
    const NeuronForward<T> f{weights.data(),     parameters.data(),    given.data(),
                             before.data(),      fields_before.data(), outputs.data(),
                             fields_after.data()};
    run_grid(x, y, c_.teams * kTeam, forward_shared<Cell, T>(units, c_.hidden, c_.teams, 0),
             [&] { neurons_forward<Cell, T, units, slices>(s, neurons, f); });
    if (gave_up != 0) return;
    const std::vector<T> whole = whole_sums();
    const NeuronRecall<T> r{parameters.data(), whole.data(),         before.data(),
                            outputs.data(),    fields_before.data(), kept.data()};
    run_grid((c_.batch * c_.hidden + kRecallThreads - 1) / kRecallThreads, 1, kRecallThreads, 0,
             [&] { neurons_recall<Cell, T>(s, neurons, r); });
    const NeuronBackward<T> b = backward_of(nullptr);
    run_grid(x, y, c_.teams * kTeam, backward_shared<Cell, T>(units, c_.hidden, c_.teams, 0),
             [&] { neurons_backward<Cell, T, units, slices>(s, neurons, b); });
  }

  // By the kernels that know no weights; gradients of sums take the place of sums.
  void run_apart() {
    Segment s;
    s.steps = c_.steps;
    s.end = s.batch = c_.batch;
    s.hidden = c_.hidden;
    const int x = (c_.batch * c_.hidden + kRecallThreads - 1) / kRecallThreads;
    const NeuronForward<T> f{
        nullptr,        parameters.data(),  given.data(), before.data(), fields_before.data(),
        outputs.data(), fields_after.data()};
    run_grid(x, 1, kRecallThreads, 0, [&] { apart_forward<Cell, T>(s, neurons, f); });
    SpikingShape shape;
    shape.cell = kFields == 1 ? SpikingCell::lif : SpikingCell::alif;
    shape.steps = c_.steps;
    shape.batch = c_.batch;
    shape.hidden = c_.hidden;
    shape.recurrent = false;
    kept.assign(static_cast<std::size_t>(spiking_kept(shape)),
                std::numeric_limits<float>::quiet_NaN());
    sums_gradient = given;
    const NeuronBackward<T> b = backward_of(sums_gradient.data());
    run_grid(x, 1, kRecallThreads, kApartShared, [&] {
      if (c_.bare) return apart_backward<Cell, T, false>(s, neurons, b);
      apart_backward<Cell, T, true>(s, neurons, b);
    });
  }

  // Every result against double that fires where the kernel does, `near` where T rounds.
  void expect_right(double near) const {
    for (std::size_t b = 0; b < static_cast<std::size_t>(c_.batch); ++b) expect_sample(b, near);
  }

  // The share of units that fire.
  double rate() const {
    double sum = 0;
    for (const T& spike : outputs) sum += number_of(spike);
    return sum / static_cast<double>(outputs.size());
  }

  int gave_up = 0;
  Neurons neurons;
  std::vector<T> weights, given, before, outputs, outputs_gradient, sums_gradient;
  std::vector<float> parameters, fields_before, fields_after, kept, after_gradient, fields_gradient,
      before_gradient, fields_before_gradient, parameters_gradient;

 private:
  // Where cells are not recurrent, `sums` are read, and there are no weights.
  NeuronBackward<T> backward_of(const T* sums) {
    return {sums == nullptr ? weights.data() : nullptr,
            parameters.data(),
            sums,
            kept.data(),
            outputs.data(),
            before.data(),
            fields_before.data(),
            c_.bare ? nullptr : outputs_gradient.data(),
            after_gradient.data(),
            fields_gradient.data(),
            sums_gradient.data(),
            before_gradient.data(),
            fields_before_gradient.data(),
            c_.bare ? nullptr : parameters_gradient.data()};
  }
  float random() { return random_(engine_); }
  static T number(float x) { return Multiplied<T>::of_float(x); }
  static double number_of(T x) { return static_cast<double>(Multiplied<T>::to_float(x)); }

  std::size_t row(std::size_t t, std::size_t b) const {
    return (t * static_cast<std::size_t>(c_.batch) + b) * hidden_;
  }
  double spike_before(std::size_t t, std::size_t b, std::size_t u) const {
    return number_of(t == 0 ? before[b * hidden_ + u] : outputs[row(t - 1, b) + u]);
  }
  double sum_of(std::size_t t, std::size_t b, std::size_t u) const {
    double sum = number_of(given[row(t, b) + u]);
    for (std::size_t j = 0; j < hidden_; ++j)
      sum += number_of(weights[u * hidden_ + j]) * spike_before(t, b, j);
    return sum;
  }
  std::vector<T> whole_sums() const {
    std::vector<T> sums;
    for (std::size_t i = 0; i < rows_; ++i) {
      const std::size_t t = i / state_, b = i / hidden_ % static_cast<std::size_t>(c_.batch);
      sums.push_back(number(static_cast<float>(sum_of(t, b, i % hidden_))));
    }
    return sums;
  }

  void expect_sample(std::size_t b, double near) const {
    Constants<double> constants;
    constants.hard = c_.hard ? 1 : 0;
    constants.attached = c_.attached ? 1 : 0;
    constants.normalised = c_.normalised ? 1 : 0;
    constants.sharpness = static_cast<double>(c_.sharpness);
    const auto steps = static_cast<std::size_t>(c_.steps);
    std::vector<double> of_spikes(hidden_);  // by what comes after
    std::vector<std::vector<double>> of_sums(steps, std::vector<double>(hidden_));
    struct Unit {
      std::array<double, kParameters> parameters{}, of_parameters{};
      std::vector<std::array<double, kFields>> fields;  // before each step, and after the last
      std::vector<double> membranes;
      std::array<double, kFields> adjoint{};
      double carried = 0;
    };
    std::vector<Unit> all(hidden_);
    for (std::size_t u = 0; u < hidden_; ++u) {
      Unit& unit = all[u];
      for (std::size_t k = 0; k < kParameters; ++k)
        unit.parameters[k] = static_cast<double>(parameters[k * hidden_ + u]);
      unit.fields.resize(1);
      for (std::size_t k = 0; k < kFields; ++k)
        unit.fields[0][k] = static_cast<double>(fields_before[k * state_ + b * hidden_ + u]);
      for (std::size_t t = 0; t < steps; ++t) {
        const double sum = sum_of(t, b, u), spike = number_of(outputs[row(t, b) + u]);
        std::array<double, kFields> before_step = unit.fields.back(), after{};
        std::array<double, 1> saved{};
        UnitForward<double> f{&sum,
                              before_step.data(),
                              spike_before(t, b, u),
                              unit.parameters.data(),
                              after.data(),
                              saved.data(),
                              0};
        Cell::forward(f, constants);
        const double distance = Cell::distance(saved.data(), after.data(), unit.parameters.data());
        ASSERT_TRUE(spike == f.spike || std::abs(distance) < near) << t << " " << u;
        if (kFields == 1 && spike != f.spike) {
          const double reset = c_.hard ? saved[0] : unit.parameters[0];
          after[0] = saved[0] - spike * reset;
        }
        if (!c_.apart) {
          ASSERT_NEAR(static_cast<double>(kept[row(t, b) + u]), kFields == 1 ? saved[0] : after[0],
                      near * 4);
        }
        unit.membranes.push_back(saved[0]);
        unit.fields.push_back(after);
      }
      for (std::size_t k = 0; k < kFields; ++k) {
        const std::size_t at = k * state_ + b * hidden_ + u;
        ASSERT_NEAR(static_cast<double>(fields_after[at]), unit.fields.back()[k], near * 4);
        unit.adjoint[k] = static_cast<double>(fields_gradient[at]);
      }
      unit.carried = static_cast<double>(after_gradient[b * hidden_ + u]);
    }
    for (std::size_t t = steps; t-- > 0;) {
      for (std::size_t u = 0; u < hidden_; ++u) {
        Unit& unit = all[u];
        const std::array<double, 1> saved{unit.membranes[t]};
        const double distance =
            Cell::distance(saved.data(), unit.fields[t + 1].data(), unit.parameters.data());
        UnitBackward<double> back{
            unit.fields[t].data(),
            unit.fields[t + 1].data(),
            saved.data(),
            spike_before(t, b, u),
            slope_at(c_.surrogate, distance, static_cast<double>(c_.sharpness)),
            unit.parameters.data(),
            unit.carried + of_spikes[u] + number_of(outputs_gradient[row(t, b) + u]),
            unit.adjoint.data(),
            &of_sums[t][u],
            unit.of_parameters.data()};
        Cell::backward(back, constants);
        unit.carried = back.output;
        ASSERT_NEAR(number_of(sums_gradient[row(t, b) + u]), of_sums[t][u],
                    40 * near * (1 + std::abs(of_sums[t][u])))
            << t << " " << u;
      }
      for (std::size_t u = 0; u < hidden_; ++u) {
        of_spikes[u] = 0;
        for (std::size_t i = 0; i < hidden_; ++i)
          of_spikes[u] += number_of(weights[i * hidden_ + u]) * of_sums[t][i];
      }
    }
    for (std::size_t u = 0; u < hidden_; ++u) {
      const std::size_t at = b * hidden_ + u;
      const auto expect = [&](float found, double wanted) {
        EXPECT_NEAR(static_cast<double>(found), wanted, 80 * near * (1 + std::abs(wanted))) << u;
      };
      expect(before_gradient[at], all[u].carried + of_spikes[u]);
      for (std::size_t k = 0; k < kFields; ++k)
        expect(fields_before_gradient[k * state_ + at], all[u].adjoint[k]);
      for (std::size_t k = 0; k < (c_.bare ? 0 : kParameters); ++k)
        expect(parameters_gradient[k * state_ + at], all[u].of_parameters[k]);
    }
  }

  Case c_;
  std::size_t hidden_, state_, rows_;
  std::mt19937 engine_{7};
  std::uniform_real_distribution<float> random_{-0.5F, 0.5F};
};

template <class Cell, class T, int units, int slices>
void check(const Case& c) {
  Emulated<Cell, T> run(c);
  run.template run<units, slices>();
  ASSERT_EQ(run.gave_up, 0);
  EXPECT_GT(run.rate(), 0.05);
  EXPECT_LT(run.rate(), 0.95);
  run.expect_right(1e-5);
}

TEST(Spiking, Lif) { check<LifMath<false>, Exact, 16, 1>({6, 5, 32, 1}); }
TEST(Spiking, Alif) { check<AlifMath, Exact, 16, 1>({6, 5, 32, 1}); }
TEST(Spiking, Adlif) { check<AdlifMath, Exact, 16, 1>({6, 5, 32, 1}); }
TEST(Spiking, AllThatResetsDo) {
  for (const bool hard : {false, true}) {
    for (const bool normalised : {false, true}) {
      check<LifMath<false>, float, 16, 1>({4, 3, 32, 1, hard, true, normalised});
      check<AlifMath, float, 16, 1>({4, 3, 32, 1, hard, true, normalised});
      check<AdlifMath, float, 16, 1>({4, 3, 32, 1, hard, true, normalised});
    }
  }
}
TEST(Spiking, OtherSurrogates) {
  check<LifMath<false>, float, 8, 1>(
      {4, 3, 32, 1, false, false, true, Surrogate::multi_gaussian, 0.5F});
  check<AlifMath, float, 16, 1>({4, 3, 32, 1, false, false, true, Surrogate::boxcar, 0.5F});
}
TEST(Spiking, MoreSamplesThanSlicesHave) {
  check<LifMath<false>, float, 16, 2>({3, 37, 32, 2});
  check<AlifMath, float, 16, 1>({3, 18, 32, 2});
}
// Stretches of 32 time steps of a lif and 16 of an alif: fewer, as many, more, and several.
TEST(Spiking, WithoutRecurrentWeights) {
  for (const bool attached : {false, true}) {
    for (const int steps : {1, 5, 16, 17, 32, 33, 70}) {
      Case c{steps, 3, 50, 1, attached, attached};
      c.apart = true;
      Emulated<LifMath<false>, float> lif(c);
      lif.run_apart();
      lif.expect_right(1e-5);
      Emulated<AlifMath, float> alif(c);
      alif.run_apart();
      alif.expect_right(1e-5);
      Emulated<AdlifMath, float> adlif(c);
      adlif.run_apart();
      adlif.expect_right(1e-5);
      EXPECT_GT(alif.rate(), 0.02);
      EXPECT_LT(lif.rate(), 0.98);
    }
  }
}
// As most layers are: thresholds and time constants do not learn, and a loss may read states alone.
TEST(Spiking, WhatIsNotWanted) {
  Case c{40, 3, 32, 1};
  c.bare = true;
  Emulated<LifMath<false>, float> recurrent(c);
  recurrent.run<16, 1>();
  recurrent.expect_right(1e-5);
  c.apart = true;
  Emulated<AlifMath, float> apart(c);
  apart.run_apart();
  apart.expect_right(1e-5);
  EXPECT_TRUE(std::isnan(apart.parameters_gradient[0]));
}
// Nobody fires, or all do in every step.
template <class Cell>
void check_extreme(bool fires, bool apart) {
  Case c{19, 5, 32, 1};
  c.apart = apart;
  Emulated<Cell, float> run(c);
  for (float& sum : run.given) sum = fires ? 20.F : -20.F;
  if (apart) {
    run.run_apart();
  } else {
    run.template run<16, 1>();
  }
  EXPECT_EQ(run.rate(), fires ? 1 : 0);
  run.expect_right(1e-5);
}
TEST(Spiking, NobodyFiresOrAllDo) {
  for (const bool fires : {false, true}) {
    for (const bool apart : {false, true}) {
      check_extreme<LifMath<false>>(fires, apart);
      check_extreme<AlifMath>(fires, apart);
      check_extreme<AdlifMath>(fires, apart);
    }
  }
}
TEST(Spiking, GivesUpWhereABlockIsMissing) {
  Emulated<LifMath<false>, float> run({3, 5, 64, 1});
  run.run<16, 1>(1);
  EXPECT_EQ(run.gave_up, 1);
  EXPECT_TRUE(std::isnan(run.fields_after[0]));
}
// The membrane is where its spike says.
TEST(Spiking, MembranesAgreeWithSpikes) {
  EXPECT_EQ(on_the_side_of(1, 0.5F, 1.F), 1.F);
  EXPECT_EQ(on_the_side_of(1, 1.5F, 1.F), 1.5F);
  EXPECT_LT(on_the_side_of(0, 1.F, 1.F), 1.F);
  EXPECT_EQ(on_the_side_of(0, 0.5F, 1.F), 0.5F);
  EXPECT_TRUE(std::isnan(on_the_side_of(0, std::nanf(""), 1.F)));
}

}  // namespace
}  // namespace ebb::gated
