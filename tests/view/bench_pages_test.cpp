// SPDX-License-Identifier: Apache-2.0
// Pages of `ebb bench --json`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <tuple>

#include "ebb/core/json.h"
#include "ebb/view/document.h"
#include "tests/message_of.h"
#include "tests/view/bench_json.h"

namespace ebb::test::bench_pages_test {
namespace {

using ::testing::HasSubstr;

// What the page's scripts get.
Json shown(const Json& bench) {
  const std::string page = document_page(bench.dump(), "bench.json");
  const std::string open = "<script type=\"application/json\" id=\"data\">";
  const std::size_t begin = page.find(open) + open.size();
  return Json::parse(page.substr(begin, page.find("</script>", begin) - begin));
}

std::string refused(const Json& bench) {
  return message_of([&] { document_page(bench.dump(), "bench.json"); });
}

// The only element of the part of that kind ("plots", "tables") and title.
Json part(const Json& data, const char* kind, const std::string& title) {
  for (const Json& own : data.at("parts")) {
    if (own.contains(kind) && own[kind][0]["title"] == title) return own[kind][0];
  }
  ADD_FAILURE() << kind << ": " << title;
  return {};
}

Json bars(const Json& data, const std::string& title) {
  for (const Json& own : data.at("parts")) {
    if (own.contains("bars") && own["bars"]["title"] == title) return own["bars"];
  }
  ADD_FAILURE() << title;
  return {};
}

std::string figure(const Json& data, const std::string& label) {
  for (const Json& own : data.at("figures")) {
    if (own[0] == label) return own[1];
  }
  return "";
}

TEST(BenchPages, DrawAsyncPredictedBesideMeasured) {
  const Json bench = Json::parse(kAsyncBench), data = shown(bench);
  EXPECT_EQ(data["title"], "Asynchronous checkpointing: states of 4 KiB in 60 KiB");
  EXPECT_EQ(figure(data, "Paper"), "Kukreja, Hueckelheim, Gorman 2018");
  EXPECT_THAT(figure(data, "async"), HasSubstr("fastest at 3 of 3 places"));
  EXPECT_FALSE(data.contains("remarks"));
  const Json plot = part(data, "plots", "Time per step against the number of steps");
  ASSERT_EQ(plot["lines"].size(), 1U);
  EXPECT_EQ(plot["lines"][0]["name"], "async");
  const Json& points = plot["lines"][0]["points"];
  ASSERT_EQ(points.size(), 2U);
  const Json& run = bench["series"]["steps"][0];
  EXPECT_EQ(points[0]["x"], 10);
  EXPECT_EQ(points[0]["predicted"], run["predicted"]["seconds_per_step"]);
  EXPECT_EQ(points[0]["measured"], run["measured"]["seconds_per_step"]);
  EXPECT_EQ(plot["levels"][0]["y"], bench["unlimited_seconds_per_step"]);
  EXPECT_THAT(plot["about"].get<std::string>(), HasSubstr("store_all does not fit."));
  const Json ratio = part(data, "plots", "Time per step against transfer / compute");
  EXPECT_EQ(ratio["lines"][0]["points"][0]["x"], bench["series"]["ratio"][0]["ratio"]);
  const Json table = part(data, "tables", "All runs");
  ASSERT_EQ(table["rows"].size(), 5U);
  for (const Json& row : table["rows"]) EXPECT_EQ(row.size(), table["head"].size());
  EXPECT_THAT(table["rows"][1].dump(), HasSubstr("does not fit (least 92 KiB)"));
}

TEST(BenchPages, DrawARatioThatCouldNotBeMeasuredNowhere) {
  Json bench = Json::parse(kAsyncBench);
  bench["series"]["ratio"][0]["ratio"] = nullptr;
  bench["budget"] = 9223372036854775807;
  const Json data = shown(bench);
  EXPECT_THAT(data["title"].get<std::string>(), HasSubstr("without a limit"));
  const Json plot = part(data, "plots", "Time per step against transfer / compute");
  EXPECT_TRUE(plot["lines"][0]["points"][0]["x"].is_null());
}

TEST(BenchPages, DrawGruslysAgainstMemory) {
  Json bench = Json::parse(kGruslysBench);
  Json& fifth = bench["series"]["memory"][2]["measured"];
  fifth["ratio"] = 1.5;
  fifth["least_ratio"] = 1.4;
  const Json data = shown(bench);
  const Json plot = part(data, "plots", "Time against memory");
  EXPECT_EQ(plot["lines"][0]["name"], "store_all");
  EXPECT_EQ(plot["lines"][1]["name"], "auto");
  const Json& point = plot["lines"][1]["points"][0];
  EXPECT_DOUBLE_EQ(point["x"].get<double>(), 0.05);
  EXPECT_EQ(point["measured"], 1.5);
  EXPECT_THAT(point["note"].get<std::string>(), HasSubstr("as revolve"));
  EXPECT_THAT(plot["about"].get<std::string>(), HasSubstr("auto does not fit at 2 %"));
  EXPECT_EQ(plot["levels"][0]["y"], bench["goal"]["ratio"]);
  EXPECT_THAT(data["remarks"][0].get<std::string>(), HasSubstr("is missed: 1.5 x"));
  const Json lengths = part(data, "plots", "Time of a time step against the length");
  EXPECT_EQ(lengths["lines"][1]["name"], "auto in 20 %");
  // A strategy looks the same in both.
  EXPECT_EQ(lengths["lines"][0]["style"], plot["lines"][0]["style"]);
}

TEST(BenchPages, SayWhetherAGoalIsMetMissedOrUndecided) {
  Json bench = Json::parse(kGruslysBench);
  Json& fifth = bench["series"]["memory"][2]["measured"];
  for (const auto& [ratio, least, word] : {std::tuple{1.3, 1.3, "met"},
                                           {1.5, 1.4, "missed"},
                                           {1.5, 1.2, "undecided, some of the runs meet it"}}) {
    fifth["ratio"] = ratio;
    fifth["least_ratio"] = least;
    const Json data = shown(bench);
    EXPECT_THAT(figure(data, "Goal: at most 1.333 x in 5 %"), HasSubstr(word));
    EXPECT_EQ(data.contains("remarks"), std::string(word) == "missed");
  }
  bench.erase("goal");  // of an earlier version
  EXPECT_TRUE(part(shown(bench), "plots", "Time against memory")["levels"].empty());
}

TEST(BenchPages, DrawDoubleOverEachSlowMemory) {
  Json bench = Json::parse(kDoubleBench);
  bench["arrangements"].push_back(bench["arrangements"][0]);
  bench["arrangements"][1]["platform"]["tiers"][0]["name"] = "disk";
  Json& series = bench["arrangements"][1]["series"];
  series["bandwidth"][0]["predicted_ratio"]["double"] = nullptr;
  series["longest"].back()["measured"]["ratio"] = 1.4;
  series["longest"].back()["measured"]["least_ratio"] = 1.3;
  const Json data = shown(bench);
  const Json most = part(data, "tables", "Over ram: the longest sequence that fits");
  EXPECT_EQ(most["rows"][0], Json({"store_all", "28", "1 x"}));
  EXPECT_EQ(most["rows"].back(), Json({"auto", "no limit", "-"}));
  const Json cost = bars(data, "Over ram: what a long sequence costs");
  EXPECT_EQ(cost["rows"][0]["what"], "store_all");
  EXPECT_EQ(cost["rows"][0]["unit"], "x");
  EXPECT_EQ(cost["rows"][0]["measured"],
            bench["arrangements"][0]["series"]["longest"][0]["measured"]["ratio"]);
  EXPECT_EQ(part(data, "plots", "Over ram: time against length")["x"]["label"], "time steps");
  EXPECT_EQ(part(data, "plots", "Over ram: time against activity")["x"]["unit"], "%");
  const Json bandwidth = part(data, "plots", "Over disk: time against bandwidth");
  EXPECT_TRUE(bandwidth["lines"][0]["points"][0]["measured"].is_null());
  EXPECT_THAT(bandwidth["about"].get<std::string>(), HasSubstr("double does not fit at 0.0625"));
  EXPECT_THAT(figure(data, "A long sequence over disk"), HasSubstr("measured 1.4 x: missed"));
  EXPECT_THAT(data["remarks"].dump(), HasSubstr("A long sequence over disk: the goal is missed"));
}

TEST(BenchPages, SayWhereGradientsAreNotExactOrNotTheSame) {
  Json bench = Json::parse(kGruslysBench);
  bench["series"]["steps"][0]["same_gradient"] = false;
  bench["series"]["steps"][1]["exact"] = false;
  const Json data = shown(bench);
  EXPECT_EQ(figure(data, "Gradients"), "NOT the same bits");
  EXPECT_THAT(data["remarks"].dump(), HasSubstr("NOT EXACT"));
}

TEST(BenchPages, RefuseWhatIsNoBench) {
  Json bench = Json::parse(kGruslysBench);
  bench["experiment"] = "other";
  EXPECT_THAT(refused(bench), HasSubstr("bench.json: \"experiment\" is \"other\"; pages show those "
                                        "of ebb bench: \"async\", \"gruslys\" and \"double\""));
  bench = Json::parse(kGruslysBench);
  bench.erase("series");
  EXPECT_THAT(refused(bench),
              HasSubstr("bench.json: this JSON was not written by ebb, or has been changed: "));
  bench = Json::parse(kAsyncBench);
  bench["chain"] = 5;
  EXPECT_THAT(refused(bench), HasSubstr("chain"));
  bench = Json::parse(kDoubleBench);
  bench["arrangements"][0]["series"]["longest"][0]["fits"] = "no";
  EXPECT_THAT(refused(bench), HasSubstr("was not written by ebb"));
}

}  // namespace
}  // namespace ebb::test::bench_pages_test
