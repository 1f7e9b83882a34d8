// SPDX-License-Identifier: Apache-2.0
#include "ebb/experiments/figure_data.h"

#include <gtest/gtest.h>

#include <limits>
#include <sstream>

#include "ebb/experiments/trials_text.h"

namespace ebb::test::figure_data_test {
namespace {

TEST(FigureData, FieldsOfCsv) {
  constexpr CsvColumn columns[] = {{"series", "/series"}, {"word", "/word"},  {"deep", "/a/b"},
                                   {"moved", "/moved"},   {"true", "/yes"},   {"none", "/none"},
                                   {"absent", "/a/c/d"},  {"exact", "/exact"}};
  Json all = Json::array();
  append_series("one",
                Json::array({{{"word", "w"},
                              {"a", {{"b", 7}}},
                              {"moved", {{"x", {{"written", 1}, {"read", 2}}}, {"y", 4}}},
                              {"yes", true},
                              {"none", nullptr},
                              {"exact", 0.1}}}),
                all);
  append_series("two", Json::array({{{"yes", false}, {"moved", Json::object()}}}), all);
  std::ostringstream out;
  write_csv(columns, all, out);
  EXPECT_EQ(out.str(),
            "series,word,deep,moved,true,none,absent,exact\n"
            "one,w,7,7,1,,,0.1\n"
            "two,,,0,0,,,\n");
}

TEST(FigureData, ATrialThatDoesNotFitHasEmptyFields) {
  const Trial trial{.strategy = "msm", .budget = 1000, .sync = true};
  std::ostringstream out;
  write_csv(trial_columns({{"series", "/series"}}), Json::array({trial_json(trial, 5, {})}), out);
  EXPECT_EQ(
      out.str(),
      "series,strategy,time_steps,budget,sync,chosen,predicted_seconds_per_time_step,"
      "measured_seconds_per_time_step,predicted_ratio,measured_ratio,spread,forwards,peak,moved,"
      "same_gradient\n"
      ",msm,5,1000,1,,,,,,,,,,\n");
}

TEST(FigureData, ATrialThatRan) {
  Trial trial{.strategy = "auto", .fits = true, .chosen = "pofo"};
  trial.predicted = {.seconds = 1, .peak = {10, 20}, .moved = {{.written = 1, .read = 2}}};
  trial.measured = {
      .forwards = 9, .seconds = 2, .peak = {11, 21}, .moved = {{.written = 3, .read = 4}}};
  trial.slowest = 2.5;
  trial.predicted_ratio = 1.5;
  trial.measured_ratio = std::numeric_limits<double>::quiet_NaN();
  trial.same_gradient = true;
  Platform platform;
  platform.tiers.push_back({.name = "disk"});
  std::ostringstream out;
  write_csv(trial_columns({}), Json::array({trial_json(trial, 4, platform)}), out);
  EXPECT_EQ(out.str().substr(out.str().find('\n') + 1),
            "auto,4,,0,pofo,0.25,0.5,1.5,null,0.25,9,11,7,1\n");
}

}  // namespace
}  // namespace ebb::test::figure_data_test
