// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/cli/run.h"
#include "tests/temporary_folder.h"

namespace ebb::test::view_command_test {
namespace {

using ::testing::HasSubstr;

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(ViewCommand, MakesThePageOfAPlan) {
  const Outcome json = plan("--steps 20 --state 1KiB --tape 4KiB --budget 30KiB --json");
  ASSERT_EQ(json.code, kDone);
  const TemporaryFile file("plan.json", json.out);
  const TemporaryFolder folder;
  const std::string page = folder.path() + "/page.html";
  const Outcome outcome = command("view", file.path() + " -o " + page);
  EXPECT_EQ(outcome.code, kDone) << outcome.err;
  EXPECT_EQ(outcome.out, page + "\n");
  EXPECT_THAT(text_of(page), HasSubstr("<title>20 steps in 30 KiB"));
  const Outcome written = command("view", file.path() + " -o -");
  EXPECT_THAT(written.out, HasSubstr("<title>20 steps in 30 KiB"));
}

TEST(ViewCommand, PlanMakesItAtOnce) {
  const TemporaryFolder folder;
  const std::string page = folder.path() + "/page.html";
  const Outcome outcome = plan("--steps 20 --state 1KiB --tape 4KiB --budget 30KiB --view " + page);
  EXPECT_EQ(outcome.code, kDone) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("It fits in 30 KiB."));
  EXPECT_THAT(text_of(page), HasSubstr("<title>20 steps in 30 KiB"));
  const Outcome actions = plan("--steps 3 --actions --view " + page);
  EXPECT_EQ(lines_of(actions.out).front().front(), '{');
}

TEST(ViewCommand, RefusesWhatIsNoPage) {
  const TemporaryFile file("plan.json", "{}");
  EXPECT_EQ(command("view", "").code, kBadUsage);
  EXPECT_EQ(command("view", file.path()).code, kBadUsage);
  EXPECT_EQ(command("view", "/nowhere/plan.json").code, kFailure);
  const Outcome same = command("view", file.path() + " -o " + file.path());
  EXPECT_EQ(same.code, kBadUsage);
  EXPECT_THAT(same.err, HasSubstr("the file to show"));
  EXPECT_EQ(text_of(file.path()), "{}");
  const TemporaryFolder folder;
  EXPECT_THAT(plan("--steps 3 --view " + folder.path()).err, HasSubstr("--view is '"));
  EXPECT_EQ(plan("--steps 3 --view /nowhere/page.html").code, kFailure);
  EXPECT_THAT(plan("--steps 3 --sweep --view x.html").err, HasSubstr("--view is for one plan"));
}

TEST(ViewCommand, WritesThroughLinksAndIntoPipes) {
  const TemporaryFolder folder;
  const std::string page = folder.path() + "/page.html", link = folder.path() + "/link.html";
  std::filesystem::create_symlink(page, link);
  EXPECT_EQ(plan("--steps 3 --view " + link).code, kDone);
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_THAT(text_of(page), HasSubstr("<title>3 steps"));
  EXPECT_EQ(plan("--steps 3 --view /dev/null").code, kDone);
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  EXPECT_THAT(plan("--steps 3 --view -").err, HasSubstr("give the name of a file"));
}

TEST(ViewCommand, TrainDrawsItsMetrics) {
  const TemporaryFolder folder;
  const std::string words = "--task adding --hidden 4 --steps 10 --batch 2 --iterations 3";
  const std::string page = folder.path() + "/page.html",
                    run = " --out " + folder.path() + "/run --view ";
  EXPECT_EQ(command("train", words + run + page).code, kDone);
  EXPECT_THAT(text_of(page), HasSubstr("<title>Training: run</title>"));
  EXPECT_EQ(command("train", words + run + "/nowhere/page.html").code, kFailure);
  EXPECT_THAT(command("train", words + " --view " + page).err, HasSubstr("say where with --out"));
  EXPECT_THAT(command("train", words + run + page + " --plan-only").err, HasSubstr("--plan-only"));
}

// As small as can be.
constexpr const char* kBench =
    "--quick --hidden 8 --batch 4 --input 3 --steps 120 --lengths 30 --memory 20 --budgets 20 "
    "--threads 1 --repeat 1 ";

TEST(ViewCommand, BenchDrawsItsResult) {
  const TemporaryFolder folder;
  const std::string page = folder.path() + "/page.html", later = folder.path() + "/later.html";
  const Outcome json = command("bench gruslys", std::string(kBench) + "--json --view " + page);
  ASSERT_EQ(json.code, kDone) << json.err;
  EXPECT_EQ(json.out.front(), '{');
  EXPECT_THAT(text_of(page), HasSubstr("<title>A small part of the memory: 8 units, 120 time"));
  const TemporaryFile file("bench.json", json.out);
  EXPECT_EQ(command("view", file.path() + " -o " + later).code, kDone);
  EXPECT_EQ(text_of(later), text_of(page));
  const Outcome text = command("bench gruslys", std::string(kBench) + "--view " + page);
  EXPECT_THAT(text.out, HasSubstr("(a) Time in a part of plain memory"));
  const Outcome csv = command("bench gruslys", std::string(kBench) + "--csv --view " + page);
  EXPECT_THAT(csv.out, HasSubstr("series,percent,strategy"));
}

// Experiments of minutes do not run for a page that cannot be written.
TEST(ViewCommand, BenchRefusesPagesBeforeItRuns) {
  const TemporaryFolder folder;
  for (const char* name : {"async", "gruslys", "double"}) {
    const std::string bench = std::string("bench ") + name;
    const Outcome nowhere = command(bench, "--view /nowhere/page.html");
    EXPECT_EQ(nowhere.code, kFailure);
    EXPECT_THAT(nowhere.err, HasSubstr("--view is '/nowhere/page.html'; there is no directory"));
    EXPECT_THAT(command(bench, "--view -").err, HasSubstr("give the name of a file"));
    EXPECT_THAT(command(bench, "--device cuda --view " + folder.path()).err,
                HasSubstr("a directory; give the name of a file in it"));
  }
  if (::geteuid() == 0) GTEST_SKIP() << "root may write everywhere";
  std::filesystem::permissions(
      folder.path(), std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  const Outcome closed = command("bench async", "--view " + folder.path() + "/page.html");
  EXPECT_EQ(closed.code, kFailure);
  EXPECT_THAT(closed.err, HasSubstr("cannot be written: Permission denied"));
  std::filesystem::permissions(folder.path(), std::filesystem::perms::owner_all);
}

}  // namespace
}  // namespace ebb::test::view_command_test
