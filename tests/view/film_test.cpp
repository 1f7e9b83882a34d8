// SPDX-License-Identifier: Apache-2.0
#include "ebb/view/film.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace ebb::test::film_test {
namespace {

FilmShape shape_of(double seconds, std::int64_t events) {
  return {.seconds = seconds,
          .steps = 10,
          .events = events,
          .lanes = {"disk writes"},
          .places = {{"fast", 100}, {"disk"}}};
}

double sum(const Json& numbers) {
  double all = 0;
  for (const Json& number : numbers) all += number.get<double>();
  return all;
}

TEST(Film, KeepsEachEventWhereThereAreFew) {
  Film film(shape_of(8, 3));
  film.worked(Film::Work::advance, 0, 2, 0, 4);
  film.worked(Film::Work::wait, 2, 4, 0, 0);
  film.worked(Film::Work::reverse, 4, 8, 3, 4);
  film.moved(0, true, false, 3, 7, 1, 3);
  film.held(0, 5, 0);
  film.held(0, 9, 2);
  film.held(0, 6, 2);
  film.held(0, 7, 2);
  EXPECT_FALSE(film.in_spans());
  const Json json = film.json();
  EXPECT_EQ(json["spans"], 0);
  EXPECT_EQ(json["work"]["kind"], Json({0, 4, 2}));
  EXPECT_EQ(json["work"]["start"], Json({0, 250'000'000, 500'000'000}));
  EXPECT_EQ(json["work"]["end"], Json({250'000'000, 500'000'000, 1'000'000'000}));
  EXPECT_EQ(json["work"]["from"], Json({0, 0, 3}));
  EXPECT_EQ(json["lanes"][0]["bytes"], Json({7}));
  EXPECT_EQ(json["lanes"][0]["out"], Json({1}));
  // Of what was held at one time, the most and the last.
  EXPECT_EQ(json["memory"][0]["at"], Json({0, 250'000'000, 250'000'000}));
  EXPECT_EQ(json["memory"][0]["bytes"], Json({5, 9, 7}));
  EXPECT_EQ(json["memory"][0]["limit"], 100);
  EXPECT_TRUE(json["memory"][1]["limit"].is_null());
}

TEST(Film, LosesNoTimeAndNoPeakWhereThereAreMany) {
  constexpr std::int64_t events = 50'000;
  Film film(shape_of(events, events));
  ASSERT_TRUE(film.in_spans());
  for (std::int64_t i = 0; i < events; ++i) {
    const auto at = static_cast<double>(i);
    film.worked(i % 2 == 0 ? Film::Work::advance : Film::Work::record, at, at + 1, i % 10,
                i % 10 + 1);
    film.held(0, i == 31'234 ? 99 : i % 7, at);
    film.moved(0, true, false, 3, 7, at, at + 0.25);
  }
  const Json json = film.json();
  EXPECT_EQ(json["spans"], Film::kSpans);
  // In thousandths of a span.
  EXPECT_NEAR(sum(json["work"]["busy"]), 1000.0 * Film::kSpans, Film::kSpans);
  EXPECT_NEAR(sum(json["lanes"][0]["busy"]), 250.0 * Film::kSpans, Film::kSpans);
  EXPECT_EQ(sum(json["lanes"][0]["count"]), events);
  const auto most = std::ranges::max_element(json["memory"][0]["bytes"], {},
                                             [](const Json& n) { return n.get<Bytes>(); });
  EXPECT_EQ(*most, 99);
  EXPECT_EQ(json["memory"][0]["bytes"].size(), static_cast<std::size_t>(Film::kSpans));
}

TEST(Film, SpreadsALongEventOverItsSpans) {
  Film film(shape_of(100, Film::kMostEvents + 1));
  film.worked(Film::Work::reverse, 50, 100, 0, 10);
  const Json work = film.json()["work"];
  ASSERT_EQ(work["from"].size(), static_cast<std::size_t>(Film::kSpans / 2));
  EXPECT_EQ(work["from"][0], 9);
  EXPECT_EQ(work["to"][0], 10);
  EXPECT_EQ(work["from"].back(), 0);
  EXPECT_NEAR(sum(work["busy"]), 1000.0 * Film::kSpans / 2, 1);
}

TEST(Film, OfNoTimeIsStillWritten) {
  Film film(shape_of(0, Film::kMostEvents + 1));
  film.worked(Film::Work::advance, 0, 0, 0, 10);
  film.held(0, 5, 0);
  EXPECT_EQ(film.json()["memory"][0]["bytes"][0], 5);
}

}  // namespace
}  // namespace ebb::test::film_test
