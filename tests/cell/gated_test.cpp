// SPDX-License-Identifier: Apache-2.0
// The kernels of gated cells, run by an emulation of a GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "tests/cell/emulated_gated.h"

namespace ebb::gated {
namespace {

using emulated::Case;
using emulated::Emulated;

template <class Cell, class T, int units, int slices, int kept = 0>
void check(const Case& c) {
  Emulated<Cell, T> run(c);
  run.template run<units, slices, kept>();
  ASSERT_EQ(run.gave_up, 0);
  const bool wide = sizeof(T) == 4;
  run.expect_right(1e-6, wide ? 1e-6 : 1e-2);
  if (!Kept<Cell>::kHeard) return;
  EXPECT_GT(run.rate(), 0.1);
  EXPECT_LT(run.rate(), 0.9);
}

TEST(Gated, Lstm) {
  check<LstmMath, float, 16, 1>({4, 5, 32, 1});
  check<LstmMath, Bfloat16, 16, 1>({4, 5, 32, 1});
}
TEST(Gated, Egru) {
  check<EgruMath, float, 16, 1>({5, 5, 32, 1});
  check<EgruMath, Bfloat16, 16, 1>({5, 5, 32, 1, true});
  check<EgruMath, Exact, 8, 1>({3, 5, 32, 1, true});
}
TEST(Gated, EgruInSlicesAndRegisters) {
  check<EgruMath, Bfloat16, 16, 2>({3, 37, 32, 2});
  check<EgruMath, float, 16, 2, 1>({2, 20, 128, 1});
  check<EgruMath, float, 32, 1, 1>({2, 13, 128, 1, true});
}
TEST(Gated, EgruWithOtherSurrogates) {
  for (const Surrogate kind : {Surrogate::fast_sigmoid, Surrogate::triangular, Surrogate::boxcar}) {
    Emulated<EgruMath, float> run({3, 4, 32, 1});
    run.surrogate = kind;
    run.sharpness = 0.4F;
    run.run<16, 1>();
    run.expect_right(1e-6, 1e-6);
  }
}
// A segment in two: what is heard is rounded within a segment as between two.
TEST(Gated, EgruInTwoSegmentsIsTheSameBits) {
  Emulated<EgruMath, Bfloat16> whole({4, 5, 32, 1}), first({2, 5, 32, 1}), second({2, 5, 32, 1});
  const auto half = static_cast<std::ptrdiff_t>(whole.given.size() / 2);
  const auto copy = [&](auto& part, std::ptrdiff_t from) {
    part.weights = whole.weights;
    part.bias = whole.bias;
    part.thresholds = whole.thresholds;
    part.before = whole.before;
    part.field_before = whole.field_before;
    std::copy_n(whole.gates.begin() + from, half, part.gates.begin());
  };
  copy(first, 0);
  copy(second, half);
  whole.run<16, 1>();
  first.run<16, 1>();
  const auto of_a_step = static_cast<std::ptrdiff_t>(second.before.size());
  std::copy_n(first.outputs.end() - of_a_step, of_a_step, second.before.begin());
  second.field_before = first.field_after;
  second.run<16, 1>();
  EXPECT_EQ(second.field_after, whole.field_after);
  EXPECT_EQ(std::memcmp(second.outputs.data(), whole.outputs.data() + first.outputs.size(),
                        second.outputs.size() * 2),
            0);
}
TEST(Gated, GradientsOfThresholdsThatNobodyWants) {
  Emulated<EgruMath, float> run({2, 3, 32, 1});
  run.of_thresholds = false;
  run.over_gates = run.in_place = true;
  run.run<16, 1>();
  EXPECT_EQ(run.gave_up, 0);
  EXPECT_EQ(run.thresholds_gradient, std::vector<float>(std::size_t{3} * 32));
  Emulated<EgruMath, float> apart({2, 3, 32, 1});
  apart.run<16, 1>();
  EXPECT_EQ(run.gates, apart.inputs_gradient);
  EXPECT_EQ(run.after_gradient, apart.before_gradient);
  EXPECT_EQ(run.field_gradient, apart.field_before_gradient);
}
TEST(Gated, GruWhoseRowsDoNotFillATile) { check<GruMath, float, 8, 1>({3, 5, 32, 1, true}); }
TEST(Gated, RnnBackwardsInTime) { check<RnnMath<true>, Bfloat16, 16, 1>({4, 18, 64, 2, true}); }
TEST(Gated, MoreSamplesThanSlicesHave) { check<GruMath, Bfloat16, 16, 2>({3, 37, 32, 2}); }
TEST(Gated, MoreChunksThanWarps) { check<LstmMath, float, 16, 1>({2, 3, 160, 1}); }
TEST(Gated, FloatsInTwoHalves) {
  check<LstmMath, Exact, 16, 1>({3, 5, 32, 1});
  check<GruMath, Exact, 8, 1>({2, 5, 32, 1, true});
}
// Tensor cores do not look at the last 13 bits.
TEST(Gated, HalvesLoseTheLastBitsAlone) {
  const auto seen = [](std::uint32_t word) {
    return static_cast<double>(float_of(word & 0xFFFFE000U));
  };
  for (const float x : {1.F, -1 / 3.F, 3.1415927F, 0x1.FFFFFEp127F, -0x1.234568p-90F, 0.F}) {
    const Halves halves(word_of(x));
    EXPECT_EQ(halves.high & 0x1FFFU, 0);
    EXPECT_EQ(float_of(halves.high) + float_of(halves.low), x);
    EXPECT_NEAR(seen(halves.high) + seen(halves.low), static_cast<double>(x),
                std::abs(static_cast<double>(x)) * 0x1p-21)
        << x;
  }
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(seen(Halves(word_of(-infinity)).high), 0);
  EXPECT_EQ(seen(Halves(word_of(-infinity)).low), -infinity);
  for (const std::uint32_t none : {0x7FC00000U, 0x7F800001U, 0xFFFFFFFEU}) {
    const Halves halves(none);
    EXPECT_TRUE(std::isnan(seen(halves.low))) << none;
  }
}
// By a weight that has no low half.
TEST(Gated, InfinityIsMultiplied) {
  Emulated<RnnMath<true>, Exact> run({1, 3, 32, 1});
  std::ranges::fill(run.weights, Exact{0.5F});
  run.before[32] = {std::numeric_limits<float>::infinity()};  // of the second sample
  run.run<16, 1>();
  ASSERT_EQ(run.gave_up, 0);
  EXPECT_EQ(run.outputs[32].value, std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isfinite(run.outputs[0].value) && std::isfinite(run.outputs[64].value));
}
TEST(Gated, WeightsInRegisters) {
  check<LstmMath, float, 16, 2, 1>({2, 20, 128, 1});
  check<GruMath, float, 16, 1, 1>({2, 5, 128, 1, true});
}
TEST(SlowGated, MoreWeightsInRegistersThanAreLookedForAtOnce) {
  check<LstmMath, float, 16, 2, 2>({3, 20, 256, 1});
  check<GruMath, float, 16, 2, 2>({3, 18, 256, 1});
}
TEST(Gated, TwoNumbersForEachThread) {
  check<LstmMath, float, 32, 1, 1>({2, 13, 128, 1});
  check<GruMath, float, 32, 2, 1>({2, 21, 128, 1, true});
}
TEST(SlowGated, WeightsInRegistersAndInSharedMemory) {
  check<LstmMath, float, 32, 1, 3>({2, 11, 384, 1});
  check<GruMath, float, 32, 2, 4>({2, 19, 512, 1, true});
}
TEST(Gated, WhereWeightsLieDoesNotChangeBits) {
  Emulated<LstmMath, float> shared({2, 18, 128, 1}), registers({2, 18, 128, 1});
  shared.run<16, 2>();
  registers.run<16, 2, 1>();
  EXPECT_EQ(shared.outputs, registers.outputs);
  EXPECT_EQ(shared.sums_gradient, registers.sums_gradient);
  EXPECT_EQ(shared.before_gradient, registers.before_gradient);
}
TEST(Gated, OrderOfWorkDoesNotChangeBits) {
  Emulated<LstmMath, Bfloat16> once({4, 20, 32, 2}), again({4, 20, 32, 1});
  once.run<16, 1>();
  again.run<16, 2>();
  EXPECT_EQ(std::memcmp(once.sums_gradient.data(), again.sums_gradient.data(),
                        once.sums_gradient.size() * 2),
            0);
  EXPECT_EQ(once.before_gradient, again.before_gradient);
}
TEST(Gated, SamplesInPartsAndGradientsOverGates) {
  const auto same = [](const auto& a, const auto& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0])) == 0;
  };
  Emulated<GruMath, Bfloat16> whole({3, 37, 32, 1}), parts({3, 37, 32, 1});
  whole.run<16, 1>();
  parts.at_a_time = 16;
  parts.over_gates = true;
  parts.run<16, 1>();
  EXPECT_TRUE(same(whole.outputs, parts.outputs));
  EXPECT_TRUE(same(whole.field_after, parts.field_after));
  EXPECT_TRUE(same(whole.sums_gradient, parts.sums_gradient));
  EXPECT_TRUE(same(whole.inputs_gradient, parts.gates));
  EXPECT_TRUE(same(whole.before_gradient, parts.before_gradient));
}
// As they are launched: 16 bits alone have their weights in registers.
TEST(SlowGated, SixteenBitsInRegisters) {
  check<LstmMath, Bfloat16, 16, 1, 1>({2, 18, 256, 1});
  check<GruMath, Bfloat16, 16, 1, 1>({2, 5, 256, 1, true});
  check<LstmMath, Bfloat16, 32, 1, 1>({2, 13, 256, 1, true});
  check<GruMath, Bfloat16, 32, 1, 1>({2, 21, 256, 1});
}
template <class Cell, class T>
void check_recalled(const Case& c) {
  Emulated<Cell, T> run(c);
  run.recalls = true;
  run.template run<16, 1>();
  ASSERT_EQ(run.gave_up, 0);
  const float near = sizeof(T) == 4 ? 1e-6F : 2e-2F;  // sums are rounded once more
  const auto number = [](T x) { return Multiplied<T>::to_float(x); };
  for (std::size_t i = 0; Cell::kSaved > 0 && i < run.gates.size(); ++i)
    ASSERT_NEAR(number(run.gates[i]), number(run.recorded[i]), near);
  for (std::size_t i = 0; Kept<Cell>::kFields && i < run.fields.size(); ++i)
    ASSERT_NEAR(run.fields[i], run.recorded_fields[i], near);
  run.expect_right(1e-6, sizeof(T) == 4 ? 1e-5 : 2e-2);
}

TEST(Gated, OutputsTellWhatWasRecorded) {
  check_recalled<LstmMath, Bfloat16>({10, 5, 32, 1, true});
  check_recalled<GruMath, float>({6, 9, 32, 1, true});
  check_recalled<RnnMath<true>, Bfloat16>({3, 5, 32, 1, true});
}
TEST(SlowGated, OutputsTellWhatWasRecorded) {
  check_recalled<LstmMath, float>({17, 17, 32, 1});
  check_recalled<GruMath, Bfloat16>({5, 3, 64, 1});
  check_recalled<RnnMath<false>, float>({3, 5, 32, 1});
}
TEST(Gated, WhatIsNotANumberIsRecalledAsSuch) {
  Emulated<LstmMath, Bfloat16> lstm({5, 3, 32, 1});
  lstm.given[0] =
      lstm.gates[0] = {0xFFFF};  // i of the first unit in the first step: c stays so until the last
  lstm.recalls = true;
  lstm.run<16, 1>();
  ASSERT_EQ(lstm.gave_up, 0);
  EXPECT_TRUE(std::isnan(lstm.fields[0]) && std::isnan(lstm.fields[384]));
  EXPECT_TRUE(std::isnan(lstm.before_gradient[0]));
  EXPECT_FALSE(std::isnan(lstm.before_gradient[32]));  // another sample
}
TEST(Gated, GradientsOfStatesInPlace) {
  Emulated<LstmMath, Bfloat16> apart({3, 5, 32, 1}), in_place({3, 5, 32, 1});
  apart.run<16, 1>();
  in_place.in_place = true;
  in_place.run<16, 1>();
  EXPECT_EQ(apart.field_after, in_place.field_after);
  EXPECT_EQ(apart.before_gradient, in_place.after_gradient);
  EXPECT_EQ(apart.field_before_gradient, in_place.field_gradient);
}
TEST(Gated, GivesUpWhereABlockIsMissing) {
  Emulated<LstmMath, Bfloat16> run({4, 5, 64, 1});
  run.run<16, 1>(1);
  EXPECT_EQ(run.gave_up, 1);
  EXPECT_TRUE(std::isnan(run.field_after[0]));
}
TEST(Gated, ReluLetsNotANumberThrough) {
  Emulated<RnnMath<true>, float> run({2, 3, 32, 1});
  run.gates[0] = -std::numeric_limits<float>::quiet_NaN();
  run.run<16, 1>();
  ASSERT_EQ(run.gave_up, 0);
  EXPECT_TRUE(std::isnan(run.outputs[0]));
  EXPECT_NE(run.sums_gradient[0], 0);
}
TEST(Gated, NotANumberGoesThrough) {
  Emulated<LstmMath, Bfloat16> run({3, 4, 32, 1});
  run.gates[0] = {0xFFFF};
  run.run<16, 1>();
  ASSERT_EQ(run.gave_up, 0);
  EXPECT_TRUE(std::isnan(Multiplied<Bfloat16>::to_float(run.outputs[0])));
  EXPECT_TRUE(std::isnan(run.before_gradient[0]));
}

}  // namespace
}  // namespace ebb::gated
