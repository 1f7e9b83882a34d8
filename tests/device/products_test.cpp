// SPDX-License-Identifier: Apache-2.0
// Products against plain loops, over many shapes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "ebb/core/random.h"
#include "ebb/device/event_sums.h"
#include "ebb/device/packed.h"
#include "tests/vector_sets.h"

namespace ebb::test::products_test {
namespace {

template <class Number>
std::vector<Number> drawn(std::int64_t count, std::uint64_t stream) {
  std::vector<Number> numbers(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<Number>(Random(1, stream).normal(i));
  }
  return numbers;
}

template <class Number>
constexpr double kError = sizeof(Number) == 4 ? 2e-5 : 1e-13;

// The last panel is as wide as one, two and three vectors of every set.
constexpr std::int64_t kShapes[][3] = {{1, 1, 1},   {3, 5, 7},     {32, 100, 33}, {9, 20, 5},
                                       {7, 48, 64}, {50, 129, 12}, {17, 300, 1},  {11, 40, 9}};

template <class TypeParam>
void packed_is_right_and_does_not_depend_on_the_rows_beside_it() {
  for (const auto& [m, n, k] : kShapes) {
    const auto a = drawn<TypeParam>(m * (k + 2), 1), w = drawn<TypeParam>(n * k, 2);
    std::vector<TypeParam> packed(static_cast<std::size_t>(packed_size<TypeParam>(k, n)));
    pack<TypeParam>(k, n, w.data(), 1, k, packed.data());
    auto c = drawn<TypeParam>(m * n, 3);
    const auto before = c;
    packed_product<TypeParam>(m, n, k, a.data(), k + 2, packed.data(), c.data(), n);
    for (std::int64_t i = 0; i < m; ++i) {
      std::vector<TypeParam> alone(before.begin() + i * n, before.begin() + (i + 1) * n);
      packed_product<TypeParam>(1, n, k, a.data() + i * (k + 2), k + 2, packed.data(), alone.data(),
                                n);
      for (std::int64_t j = 0; j < n; ++j) {
        double right = static_cast<double>(before[static_cast<std::size_t>(i * n + j)]);
        for (std::int64_t l = 0; l < k; ++l) {
          right += static_cast<double>(a[static_cast<std::size_t>(i * (k + 2) + l)]) *
                   static_cast<double>(w[static_cast<std::size_t>(j * k + l)]);
        }
        ASSERT_NEAR(static_cast<double>(c[static_cast<std::size_t>(i * n + j)]), right,
                    kError<TypeParam>);
        ASSERT_EQ(c[static_cast<std::size_t>(i * n + j)], alone[static_cast<std::size_t>(j)]);
      }
    }
  }
}

// Cut at any place where it may be, and with factors that lie the other way round.
template <class Number>
void parts_have_the_bits_of_the_whole() {
  const std::int64_t cut = panel_widths<Number>().cut;
  for (const auto& [m, n, k] : kShapes) {
    const auto a = drawn<Number>(m * k, 1), w = drawn<Number>(n * k, 2);
    std::vector<Number> turned(a.size());
    for (std::int64_t r = 0; r < m; ++r) {
      for (std::int64_t i = 0; i < k; ++i) {
        turned[static_cast<std::size_t>(i * m + r)] = a[static_cast<std::size_t>(r * k + i)];
      }
    }
    std::vector<Number> packed(static_cast<std::size_t>(packed_size<Number>(k, n)));
    pack<Number>(k, n, w.data(), 1, k, packed.data());
    auto whole = drawn<Number>(m * n, 3);
    const auto before = whole;
    packed_product<Number>(m, n, k, a.data(), k, packed.data(), whole.data(), n);
    auto other = before;
    packed_product<Number>(m, {0, n, n}, k, {turned.data(), m, true}, packed.data(),
                           {other.data(), n, nullptr});
    ASSERT_EQ(whole, other);
    // Rows that begin with the same numbers, whatever was there.
    auto started = drawn<Number>(m * n, 4), repeated = started;
    for (std::int64_t r = 0; r < m; ++r) std::copy_n(before.begin(), n, repeated.begin() + r * n);
    packed_product<Number>(m, n, k, a.data(), k, packed.data(), repeated.data(), n);
    packed_product<Number>(m, {0, n, n}, k, {a.data(), k, false}, packed.data(),
                           {started.data(), n, before.data()});
    ASSERT_EQ(repeated, started);
    for (const std::int64_t width : {cut, 2 * cut, 5 * cut}) {
      auto parts = before;
      for (std::int64_t from = 0; from < n; from += width) {
        packed_product<Number>(m, {from, std::min(n, from + width), n}, k, {a.data(), k, false},
                               packed.data(), {parts.data() + from, n, nullptr});
      }
      ASSERT_EQ(whole, parts) << n << " columns, " << width << " at a time";
    }
  }
}

template <class TypeParam>
void event_sums_are_right() {
  constexpr std::size_t width = kEventWidth, inputs = 7, rows = 5, stride = kEventWidth + 3;
  const auto weights = drawn<TypeParam>(inputs * width, 1), d = drawn<TypeParam>(rows * width, 2);
  // Some inputs of some rows, in rising order of inputs, with a row that comes twice for one input.
  const std::vector<std::uint16_t> of_inputs{0, 0, 1, 3, 3, 3, 6};
  const std::vector<std::uint16_t> of_rows{0, 4, 2, 1, 1, 3, 0};
  const std::vector<std::uint32_t> starts{0, 2, 3, 3, 6, 6, 6, 7};
  const auto values = drawn<TypeParam>(of_inputs.size(), 3);
  for (const bool valued : {false, true}) {
    const EventList<TypeParam> events{.first = 100,
                                      .inputs = inputs,
                                      .first_row = 0,
                                      .starts = starts.data(),
                                      .rows = of_rows.data(),
                                      .values = valued ? values.data() : nullptr};
    const auto before = drawn<TypeParam>(rows * stride, 4);
    auto sums = before;
    add_weights<TypeParam>(events, weights.data(), sums.data(), stride);
    auto added = weights;
    add_to_weights<TypeParam>(events, d.data(), added.data());
    std::vector<double> right_sums(before.begin(), before.end());
    std::vector<double> right_added(weights.begin(), weights.end());
    for (std::size_t e = 0; e < of_inputs.size(); ++e) {
      const double value = valued ? static_cast<double>(values[e]) : 1.0;
      const std::size_t input = of_inputs[e], row = of_rows[e];
      for (std::size_t j = 0; j < width; ++j) {
        right_sums[row * stride + j] += value * static_cast<double>(weights[input * width + j]);
        right_added[input * width + j] += value * static_cast<double>(d[row * width + j]);
      }
    }
    for (std::size_t i = 0; i < sums.size(); ++i) {
      ASSERT_NEAR(static_cast<double>(sums[i]), right_sums[i], kError<TypeParam>) << i;
    }
    for (std::size_t i = 0; i < added.size(); ++i) {
      ASSERT_NEAR(static_cast<double>(added[i]), right_added[i], kError<TypeParam>) << i;
    }
  }
}

// Rows with no, one and many numbers, every second of the pieces that `starts` divides them into.
template <class TypeParam>
void sparse_products_are_right() {
  constexpr std::size_t rows = 6, columns = 40;
  const std::vector<std::uint32_t> starts{0, 3, 3, 3, 3, 4, 4, 4, 30, 31, 33, 35, 36};
  std::vector<std::uint16_t> places(starts.back());
  for (std::size_t e = 0; e < places.size(); ++e) {
    places[e] = static_cast<std::uint16_t>(e * 17 % columns);
  }
  const auto values = drawn<TypeParam>(places.size(), 1);
  const SparseRows<TypeParam> matrix{starts.data(), 2, places.data(), values.data()};
  for (const std::int64_t width : {kNarrow, kWide}) {
    const auto wide = static_cast<std::size_t>(width);
    const auto x = drawn<TypeParam>(columns * wide, 2), before = drawn<TypeParam>(rows * wide, 3);
    auto sums = before;
    add_sparse_product<TypeParam>(rows, matrix, width, x.data(), sums.data());
    for (std::size_t i = 0; i < rows; ++i) {
      for (std::size_t b = 0; b < wide; ++b) {
        auto right = static_cast<double>(before[i * wide + b]);
        for (std::size_t e = starts[2 * i]; e < starts[2 * i + 2]; ++e) {
          right += static_cast<double>(values[e]) * static_cast<double>(x[places[e] * wide + b]);
        }
        ASSERT_NEAR(static_cast<double>(sums[i * wide + b]), right, kError<TypeParam>) << i;
      }
    }
  }
}

template <class TypeParam>
void event_dots_are_right_and_do_not_depend_on_the_others() {
  const std::size_t rows = 70, width = kEventWidth;
  const auto data = drawn<TypeParam>(rows * kEventWidth, 1);
  const auto d = drawn<TypeParam>(kEventWidth, 4);
  std::vector<std::uint16_t> list;
  for (std::uint16_t r = 0; r < rows; r = static_cast<std::uint16_t>(r + 3)) list.push_back(r);
  for (const std::size_t count : {list.size(), list.size() - 1, list.size() - 2, std::size_t{1}}) {
    std::vector<TypeParam> results(rows, TypeParam{1});
    dot_rows<TypeParam>(static_cast<std::int64_t>(count), list.data(), data.data(), d.data(),
                        results.data());
    for (std::uint16_t r = 0; r < rows; ++r) {
      if (r % 3 != 0 || r / 3U >= count) {
        ASSERT_EQ(results[r], TypeParam{1}) << r;
        continue;
      }
      double right = 1;
      for (std::size_t j = 0; j < width; ++j) {
        right += static_cast<double>(d[j]) * static_cast<double>(data[r * width + j]);
      }
      ASSERT_NEAR(static_cast<double>(results[r]), right, kError<TypeParam>) << r;
      std::vector<TypeParam> alone(rows, TypeParam{1});
      dot_rows<TypeParam>(1, &r, data.data(), d.data(), alone.data());
      ASSERT_EQ(results[r], alone[r]) << r;
    }
  }
}

// Double precision has no vectors of its own.
TEST(Products, OfDoublesAreRight) {
  packed_is_right_and_does_not_depend_on_the_rows_beside_it<double>();
  parts_have_the_bits_of_the_whole<double>();
  event_sums_are_right<double>();
  sparse_products_are_right<double>();
  event_dots_are_right_and_do_not_depend_on_the_others<double>();
  EXPECT_EQ(kEventWidth % packed_width<double>(), 0);
}

EBB_WITH_EACH_VECTOR_SET(VectorSets);

TEST_P(VectorSets, PackedProductsAreRight) {
  packed_is_right_and_does_not_depend_on_the_rows_beside_it<float>();
}
TEST_P(VectorSets, PartsOfProductsHaveTheBitsOfTheWhole) {
  parts_have_the_bits_of_the_whole<float>();
}
TEST_P(VectorSets, EventSumsAreRight) { event_sums_are_right<float>(); }
TEST_P(VectorSets, SparseProductsAreRight) { sparse_products_are_right<float>(); }
TEST_P(VectorSets, EventDotsAreRight) {
  event_dots_are_right_and_do_not_depend_on_the_others<float>();
}

TEST_P(VectorSets, PanelsFitTheVectors) {
  const auto [whole, step, cut] = panel_widths<float>();
  EXPECT_EQ(kEventWidth % whole, 0);
  EXPECT_EQ(whole % step, 0);
  EXPECT_EQ(whole % cut, 0);
  EXPECT_EQ(cut % step, 0);
  EXPECT_EQ(panel_width<float>(0), 0);
  EXPECT_EQ(panel_width<float>(1), step);
  EXPECT_EQ(panel_width<float>(whole - step + 1), whole);
  EXPECT_EQ(panel_width<float>(whole + 1), whole);
  EXPECT_EQ(packed_size<float>(7, 2 * whole + 1), 7 * (2 * whole + step));
}

// Else the cases above would be the same one under several names.
TEST(VectorSetsOfThisMachine, AreOfSeveralWidths) {
  std::set<std::int64_t> widths;
  for (const std::string& set : vector_sets()) {
    use_vector_set(set);
    widths.insert(vector_bytes());
  }
  use_vector_set(vector_sets().front());
  EXPECT_EQ(vector_bytes(), *widths.rbegin());
#if defined(__x86_64__)
  EXPECT_EQ(widths.contains(32), __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
  EXPECT_EQ(widths.contains(64), __builtin_cpu_supports("avx512f") != 0);
#endif
}

}  // namespace
}  // namespace ebb::test::products_test
