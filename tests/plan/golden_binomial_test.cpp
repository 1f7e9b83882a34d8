// SPDX-License-Identifier: Apache-2.0
// Golden numbers of papers.md 0 and 1.2 (Revolve, HSM, ISM) and peers.md 7.2. Recurrences are
// written out here, apart from the library's closed forms.
#include "ebb/plan/binomial.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <sstream>
#include <variant>
#include <vector>

#include "ebb/plan/replay.h"
#include "tests/plan/ask.h"

namespace ebb::test::golden_binomial_test {
namespace {

using ::testing::Contains;
using Table = std::vector<std::vector<std::int64_t>>;  // [m][t]

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max() / 4;

std::int64_t triangle(std::int64_t t) { return t * (t + 1) / 2; }

// C(t,m) = min over y of y + C(t-y,m-1) + C(y-shorter,m), C(t,1) = t(t+1)/2: HSM with shorter = 0,
// ISM with 1.
Table gruslys(std::size_t most_t, std::size_t most_m, std::size_t shorter) {
  Table c(most_m + 1, std::vector<std::int64_t>(most_t + 1, 0));
  for (std::size_t m = 1; m <= most_m; ++m) {
    for (std::size_t t = 1; t <= most_t; ++t) {
      c[m][t] = triangle(static_cast<std::int64_t>(t));
      if (t == 1) c[m][t] = 1;
      for (std::size_t y = 1; m > 1 && y < t + shorter; ++y) {
        c[m][t] =
            std::min(c[m][t], static_cast<std::int64_t>(y) + c[m - 1][t - y] + c[m][y - shorter]);
      }
    }
  }
  return c;
}

// P(l,s) by its recurrence.
Table revolve(std::size_t most_l, std::size_t most_s) {
  Table p(most_s + 1, std::vector<std::int64_t>(most_l + 1, kNever));
  for (std::size_t s = 1; s <= most_s; ++s) {
    for (std::size_t l = 1; l <= most_l; ++l) {
      if (s == 1 || l == 1) p[s][l] = triangle(static_cast<std::int64_t>(l) - 1);
      for (std::size_t i = 1; s > 1 && i < l; ++i) {
        p[s][l] = std::min(p[s][l], static_cast<std::int64_t>(i) + p[s][i] + p[s - 1][l - i]);
      }
    }
  }
  return p;
}

TEST(GoldenBinomial, Beta) {
  EXPECT_EQ(beta(-1, 3), 0);
  EXPECT_EQ(beta(3, -1), 0);
  EXPECT_EQ(beta(0, 9), 1);
  EXPECT_EQ(beta(9, 0), 1);
  EXPECT_EQ(beta(4, 5), 126);
  EXPECT_EQ(beta(5, 4), 126);
  EXPECT_EQ(beta(30, 30), 118264581564861424);
  EXPECT_EQ(beta(40, 40), kUnlimited);
}

TEST(GoldenBinomial, AdvancesAreTheRecurrences) {
  const Table p = revolve(79, 12);
  for (std::int64_t s = 1; s <= 12; ++s) {
    for (std::int64_t l = 1; l <= 79; ++l) {
      EXPECT_EQ(binomial_advances(l, s),
                p[static_cast<std::size_t>(s)][static_cast<std::size_t>(l)])
          << l << " steps, " << s << " slots";
    }
  }
}

TEST(GoldenBinomial, AdvancesAtTheBorders) {
  for (std::int64_t s = 1; s <= 30; ++s) {
    EXPECT_EQ(binomial_advances(1, s), 0);
    for (std::int64_t l = 2; l <= s; ++l) EXPECT_EQ(binomial_advances(l, s), l - 1);
  }
  for (std::int64_t l = 1; l <= 50; ++l) EXPECT_EQ(binomial_advances(l, 1), triangle(l - 1));
}

// The 14 352 cases of papers.md 0.1, less those of one slot, which has no split.
TEST(GoldenBinomial, EverySplitIsOptimal) {
  for (std::int64_t s = 2; s <= 24; ++s) {
    for (std::int64_t n = 2; n <= 599; ++n) {
      std::int32_t repeats = 0;
      const std::int64_t y = binomial_split(n, s, repeats);
      ASSERT_TRUE(1 <= y && y < n) << n << " steps, " << s << " slots";
      ASSERT_EQ(y + binomial_advances(y, s) + binomial_advances(n - y, s - 1),
                binomial_advances(n, s))
          << n << " steps, " << s << " slots";
    }
  }
}

TEST(GoldenBinomial, HsmAndIsmAreRevolve) {
  const Table hsm = gruslys(1000, 61, 0);
  for (std::int64_t m = 1; m <= 61; ++m) {
    for (std::int64_t t = 1; t <= 1000; ++t) {
      ASSERT_EQ(hsm[static_cast<std::size_t>(m)][static_cast<std::size_t>(t)],
                t + binomial_advances(t, m));
    }
  }
  const Table ism = gruslys(120, 12, 1);
  for (std::int64_t m = 1; m <= 12; ++m) {
    for (std::int64_t t = 1; t <= 120; ++t) {
      ASSERT_EQ(ism[static_cast<std::size_t>(m)][static_cast<std::size_t>(t)],
                binomial_advances(t + 1, m));
    }
  }
}

// Opt_0(l,c) of Aupy and Herrmann: l = n-1 forwards carry n backwards.
TEST(GoldenBinomial, AupysOptIsRevolve) {
  constexpr std::int64_t uf = 3, ub = 5;
  Table opt(7, std::vector<std::int64_t>(60, ub));
  for (std::size_t c = 1; c <= 6; ++c) {
    for (std::size_t l = 1; l < 60; ++l) {
      const auto steps = static_cast<std::int64_t>(l);
      opt[c][l] = (steps + 1) * ub + triangle(steps) * uf;
      for (std::size_t j = 1; c > 1 && j < l; ++j) {
        opt[c][l] = std::min(opt[c][l],
                             static_cast<std::int64_t>(j) * uf + opt[c - 1][l - j] + opt[c][j - 1]);
      }
      const auto slots = static_cast<std::int64_t>(c);
      EXPECT_EQ(opt[c][l], binomial_advances(steps + 1, slots) * uf + (steps + 1) * ub);
      const Plan plan = plan_for(steps + 1, in_slots("revolve", slots),
                                 {.forward = uf, .record = 0, .backward = ub});
      EXPECT_EQ(plan.prediction.seconds, static_cast<double>(opt[c][l]));
    }
  }
}

constexpr std::int64_t kHsm[5][12] = {{1, 3, 6, 10, 15, 21, 28, 36, 45, 55, 66, 78},
                                      {1, 3, 5, 8, 11, 14, 18, 22, 26, 30, 35, 40},
                                      {1, 3, 5, 7, 10, 13, 16, 19, 22, 25, 29, 33},
                                      {1, 3, 5, 7, 9, 12, 15, 18, 21, 24, 27, 30},
                                      {1, 3, 5, 7, 9, 11, 14, 17, 20, 23, 26, 29}};
constexpr std::int64_t kIsm[5][12] = {{1, 3, 6, 10, 15, 21, 28, 36, 45, 55, 66, 78},
                                      {1, 2, 4, 6, 8, 11, 14, 17, 20, 24, 28, 32},
                                      {1, 2, 3, 5, 7, 9, 11, 13, 15, 18, 21, 24},
                                      {1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 18, 20},
                                      {1, 2, 3, 4, 5, 7, 9, 11, 13, 15, 17, 19}};

// C_H^A(t,m-1) = C_H(t,m): the paper's m counts the start (HSM) or the tape in use (ISM),
// convention A neither.
TEST(GoldenBinomial, TotalsOfShortChains) {
  for (std::int64_t m = 1; m <= 5; ++m) {
    for (std::int64_t t = 1; t <= 12; ++t) {
      SCOPED_TRACE(std::to_string(t) + " steps, m " + std::to_string(m));
      EXPECT_EQ(forwards(t, with_extra("hsm", m - 1)), kHsm[m - 1][t - 1]);
      EXPECT_EQ(forwards(t, with_extra("revolve", m - 1)), kHsm[m - 1][t - 1]);
      EXPECT_EQ(forwards(t, in_slots("hsm", m)), kHsm[m - 1][t - 1]);
      EXPECT_EQ(forwards(t, with_extra("ism", m - 1)), kIsm[m - 1][t - 1]);
      // A tape of 3 bytes takes 3 bytes.
      EXPECT_EQ(forwards(t, with_extra("ism", 3 * m - 1), {.tape = 3}), kIsm[m - 1][t - 1]);
    }
  }
  for (std::int64_t t = 1; t <= 12; ++t) {
    EXPECT_EQ(forwards(t, in_slots("constant", 5)), kHsm[0][t - 1]);
  }
}

TEST(GoldenBinomial, ForwardsPerStepOfAThousand) {
  const std::pair<std::int64_t, std::pair<std::int64_t, std::int64_t>> rows[] = {
      {1, {500500, 500500}}, {2, {29820, 28864}}, {3, {13155, 12172}}, {4, {8998, 8008}},
      {5, {7284, 6292}},     {10, {4636, 3640}},  {20, {3747, 2750}},  {50, {2948, 1950}}};
  for (const auto& [m, total] : rows) {
    EXPECT_EQ(forwards(1000, with_extra("hsm", m - 1)), total.first) << m;
    EXPECT_EQ(forwards(1000, with_extra("ism", m - 1)), total.second) << m;
  }
}

// Every optimal first split is in the set, ours is one of them.
TEST(GoldenBinomial, FirstSplits) {
  struct Case {
    bool tapes;
    std::int64_t t, m;
    std::vector<std::int64_t> splits;
  };
  const std::vector<Case> cases = {
      {false, 5, 2, {2, 3}}, {false, 5, 3, {1, 2}},   {false, 5, 4, {1}},
      {false, 10, 2, {6}},   {false, 10, 3, {4}},     {false, 10, 4, {1, 2, 3, 4, 5}},
      {true, 5, 2, {3}},     {true, 5, 3, {1, 2, 3}}, {true, 5, 4, {1, 2}},
      {true, 10, 2, {6, 7}}, {true, 10, 3, {4, 5}},   {true, 10, 4, {1, 2, 3, 4, 5}}};
  for (const Case& c : cases) {
    SCOPED_TRACE((c.tapes ? "ism " : "hsm ") + std::to_string(c.t) + " " + std::to_string(c.m));
    const Table cost = gruslys(10, 4, c.tapes ? 1 : 0);
    const auto t = static_cast<std::size_t>(c.t);
    const auto m = static_cast<std::size_t>(c.m);
    std::vector<std::int64_t> optimal;
    for (std::size_t y = 1; y < t + (c.tapes ? 1 : 0); ++y) {
      const std::int64_t left = cost[m][c.tapes ? y - 1 : y];
      if (static_cast<std::int64_t>(y) + cost[m - 1][t - y] + left == cost[m][t]) {
        optimal.push_back(static_cast<std::int64_t>(y));
      }
    }
    EXPECT_EQ(optimal, c.splits);
    const BinomialPolicy policy(c.tapes);
    EXPECT_THAT(c.splits, Contains(policy.choose({.a = 0, .b = c.t, .room = c.m}).at));
  }
}

// F advance, R recording forward, B backward, steps counted from 1; + and - save and drop a state,
// ^ loads it.
std::string trace(const Plan& plan) {
  struct Writer {
    std::ostringstream& out;
    void operator()(const Advance& a) {
      for (std::int64_t i = a.from; i < a.to; ++i) out << "F" << i + 1 << " ";
    }
    void operator()(const Record& r) {
      for (std::int64_t i = r.from; i < r.to; ++i) out << "R" << i + 1 << " ";
    }
    void operator()(const Reverse& r) {
      for (std::int64_t i = r.to; i > r.from; --i) out << "B" << i << " ";
    }
    void operator()(const Copy& c) { out << (c.to == Place::work ? "^" : "+") << c.step << " "; }
    void operator()(const Drop& d) { out << "-" << d.step << " "; }
  };
  std::ostringstream out;
  for (const Action& action : actions_of(plan)) std::visit(Writer{out}, action);
  return out.str();
}

// The published trace is F1 F2 push(h2) | F3 F4 R5 B5 | top: F3 R4 B4 | top: R3 B3 | pop | F1
// push(h1) R2 B2 pop | R1 B1. Ours does not push h1, which nobody loads before it is popped, and
// drops h2 at its last load.
TEST(GoldenBinomial, TraceOfFiveSteps) {
  EXPECT_EQ(trace(plan_for(5, with_extra("hsm", 1))),
            "F1 F2 +2 F3 F4 R5 B5 ^2 F3 R4 B4 ^2 -2 R3 B3 ^0 F1 R2 B2 ^0 R1 B1 ");
}

TEST(GoldenBinomial, RevolveTotals) {
  struct Row {
    std::int64_t n, s, total;
  };
  const Row rows[] = {
      {10, 1, 55},      {10, 2, 30},      {10, 3, 25},      {10, 4, 24},     {10, 5, 23},
      {10, 6, 22},      {10, 7, 21},      {10, 8, 20},      {10, 9, 19},     {50, 7, 155},
      {100, 1, 5050},   {100, 2, 945},    {100, 3, 590},    {100, 5, 416},   {100, 10, 322},
      {100, 20, 278},   {100, 50, 248},   {100, 99, 199},   {225, 15, 747},  {250, 25, 723},
      {250, 50, 698},   {250, 75, 673},   {250, 100, 648},  {250, 125, 623}, {250, 150, 598},
      {250, 175, 573},  {250, 200, 548},  {250, 225, 523},  {1000, 5, 7284}, {1000, 10, 4636},
      {1000, 20, 3747}, {1000, 40, 3097}, {1000, 60, 2938}, {1000, 80, 2918}};
  for (const auto& [n, s, total] : rows) {
    SCOPED_TRACE(std::to_string(n) + " steps, " + std::to_string(s) + " slots");
    const Plan plan = plan_for(n, in_slots("revolve", s));
    EXPECT_EQ(plan.prediction.forwards, total);
    EXPECT_EQ(plan.prediction.advances, total - n);
    EXPECT_LE(plan.prediction.peak[0], s);
    EXPECT_TRUE(plan.optimal);
    EXPECT_LT(plan.gap(), 1e-9);
  }
}

// Checkpointing.jl's tests: 50 steps in 7 slots take 105 advances and 28 stores.
TEST(GoldenBinomial, CheckpointingJl) {
  const Plan plan = plan_for(50, in_slots("revolve", 7));
  EXPECT_EQ(plan.prediction.advances, 105);
  std::int64_t stores = 0;
  for (const Action& action : actions_of(plan)) {
    const Copy* const copy = std::get_if<Copy>(&action);
    if (copy != nullptr && copy->to == Place::fast) ++stores;
  }
  EXPECT_EQ(stores, 28);
  EXPECT_EQ(plan_for(225, in_slots("revolve", 15)).prediction.advances, 522);
}

// TreeverseAlgorithm.jl's border cases: with 4 slots 126 = C(9,4) steps are the most that run at
// most 5 times ahead.
TEST(GoldenBinomial, NoStepAdvancesMoreThanTheBorderSays) {
  for (const auto& [n, repeats] :
       {std::pair<std::int64_t, int>(20, 3), {120, 5}, {126, 5}, {127, 6}}) {
    std::vector<int> times(static_cast<std::size_t>(n), 0);
    for (const Action& action : actions_of(plan_for(n, in_slots("revolve", 4)))) {
      const Advance* const a = std::get_if<Advance>(&action);
      for (std::int64_t i = a ? a->from : 0; a && i < a->to; ++i)
        ++times[static_cast<std::size_t>(i)];
    }
    EXPECT_EQ(*std::max_element(times.begin(), times.end()), repeats) << n;
  }
}

}  // namespace
}  // namespace ebb::test::golden_binomial_test
