// SPDX-License-Identifier: Apache-2.0
// What is not 0 is found once, in order, also among more rows than a list has numbers for.
#include "ebb/cell/activity.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <tuple>
#include <vector>

#include "ebb/core/carver.h"

namespace ebb::test::activity_test {
namespace {

using Found = std::vector<std::tuple<std::int64_t, std::int64_t, float>>;  // input, row, value

constexpr std::int64_t kInputs = 70;

struct Case {
  std::int64_t samples, steps;
};

// About one number in eleven.
std::vector<std::vector<float>> numbers(const Case& c) {
  std::vector<std::vector<float>> steps(static_cast<std::size_t>(c.steps));
  std::uint32_t random = 1;
  for (std::vector<float>& step : steps) {
    step.resize(static_cast<std::size_t>(c.samples * kInputs));
    for (float& number : step) {
      random = random * 1664525 + 1013904223;
      number = random >> 24 < 23 ? static_cast<float>(random >> 8 & 0xffff) + 1 : 0;
    }
  }
  return steps;
}

Found found_in(const Case& c, const std::vector<std::vector<float>>& steps) {
  const std::int64_t rows = c.samples * c.steps;
  const auto carve = [&](std::byte* from, Bytes* used) {
    Carver carver(from);
    const auto events = Events<float>::at(carver, kInputs, rows, false);
    *used = carver.used();
    return events;
  };
  Bytes bytes = 0;
  carve(nullptr, &bytes);
  std::vector<std::byte> room(static_cast<std::size_t>(bytes));
  const Events<float> events = carve(room.data(), &bytes);
  std::vector<Rows<float>> all;
  all.reserve(steps.size());
  for (const std::vector<float>& step : steps) all.push_back({step.data(), nullptr, kInputs, 1});
  for (std::int64_t stretch = 0; stretch < words_of(kInputs); ++stretch) {
    find_events<float>(all, c.samples, stretch, kInputs, false, events);
  }
  Found found;
  for (std::int64_t i = 0; i < events.lists(); ++i) {
    const EventList<float> list = events.of(i);
    for (std::int64_t input = 0; input < list.inputs; ++input) {
      for (std::uint32_t e = list.starts[input]; e < list.starts[input + 1]; ++e) {
        found.emplace_back(list.first + input, list.first_row + list.rows[e], list.values[e]);
      }
    }
  }
  return found;
}

class EventsFound : public ::testing::TestWithParam<Case> {};

TEST_P(EventsFound, AreThoseThatAreNot0) {
  const auto steps = numbers(GetParam());
  const Found found = found_in(GetParam(), steps);
  std::vector<std::vector<float>> left = steps;
  std::int64_t last_row = -1, last_input = -1;
  for (const auto& [input, row, value] : found) {
    // Of one input rows rise: sums are in that order.
    if (input == last_input) {
      EXPECT_GT(row, last_row);
    }
    last_row = row, last_input = input;
    const auto t = static_cast<std::size_t>(row / GetParam().samples);
    float& number =
        left.at(t).at(static_cast<std::size_t>(row % GetParam().samples * kInputs + input));
    ASSERT_EQ(number, value);
    number = 0;
  }
  for (const std::vector<float>& step : left) {
    for (const float number : step) ASSERT_EQ(number, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, EventsFound,
                         ::testing::Values(Case{1, 1}, Case{5, 3}, Case{kEventRows, 1},
                                           Case{kEventRows + 1, 1}, Case{2 * kEventRows + 7, 1},
                                           Case{kEventRows / 4, 4}));

}  // namespace
}  // namespace ebb::test::activity_test
