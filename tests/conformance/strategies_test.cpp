// SPDX-License-Identifier: Apache-2.0
// Every strategy on every arrangement of tiers, on several Steps: the same bits as storing
// everything, forwards and peaks as replay says. A new row of the table is walked without an edit
// here.
#include <gtest/gtest.h>

#include <functional>

#include "ebb/core/error.h"
#include "ebb/plan/strategies.h"
#include "ebb/store/tier_kinds.h"
#include "tests/conformance/walk.h"
#include "tests/thorough.h"

namespace ebb::test::strategies_test {
namespace {

using Maker = std::unique_ptr<TestStep> (*)(std::int64_t);

struct Arrangement {
  std::string name;
  std::vector<SlowTier> tiers;
};

std::vector<Arrangement> arrangements(const std::string& folder) {
  const Bytes room = 64_MiB;
  std::vector<Arrangement> all{
      {"none", {}},
      {"file by threads",
       {file_tier(folder, room, "disk", {.engine = FileEngine::threads, .direct = true})}},
  };
  // Every row of the table that keeps what it is given.
  for (const TierKind& kind : tier_kinds()) {
    if (!kind.keeps || kind.word == "file") continue;
    const std::string word(kind.word);
    all.push_back(
        {word, {make_tier(kind, {.name = word, .value = folder, .capacity = room}).tier}});
  }
  all.push_back({"memory and file", {memory_tier(room), file_tier(folder, room)}});
  if (has_uring()) {
    all.push_back(
        {"file by io_uring", {file_tier(folder, room, "disk", {.engine = FileEngine::uring})}});
  }
  // Planning is most of the test: the arrangements that use most of the store stand in.
  if (!thorough()) all.erase(all.begin(), all.end() - (has_uring() ? 2 : 1));
  return all;
}

class Strategies : public testing::TestWithParam<std::string> {
 protected:
  std::int64_t runs_ = 0;
};

TEST_P(Strategies, SameBitsInEveryBudgetAndTier) {
  const TemporaryFolder folder;
  const std::string strategy = GetParam();
  struct Size {
    Maker make;
    std::vector<std::int64_t> steps;
  };
  std::vector<Size> sizes{{small_step, {0, 1, 2, 3, 17, 200}},
                          {gated_step, {1, 30}},
                          {uneven_step, {1, 2, 12, 40}},
                          {spiking_step, {60}},
                          {network_step, {1, 25}}};
  if (!thorough())
    sizes = {{small_step, {0, 1, 17}}, {gated_step, {9}}, {uneven_step, {12}}, {network_step, {9}}};
  for (const Size& size : sizes) {
    for (const std::int64_t steps : size.steps) {
      const auto step = size.make(steps);
      const Results expected = stored_all(*step);
      for (const Arrangement& arrangement : arrangements(folder.path())) {
        RunOptions options = planned(*step, arrangement.tiers);
        for (const Bytes budget : budgets(*step, options, strategy)) {
          SCOPED_TRACE(step->name() + ", " + std::to_string(steps) + " steps, " + strategy + ", " +
                       arrangement.name + ", " + std::to_string(budget) + " bytes");
          options.strategy = strategy;
          options.budget = budget;
          try {
            check(*step, options, expected);
            ++runs_;
          } catch (const Error& error) {
            ADD_FAILURE() << error.what();
          }
          if (HasFailure()) return;
        }
      }
    }
  }
  // Every row works with at least one arrangement.
  EXPECT_GE(runs_, thorough() ? 20 : 4);
  EXPECT_TRUE(folder.empty());
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const StrategyRow& row : strategies()) all.emplace_back(row.name);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Rows, Strategies, testing::ValuesIn(names()),
                         [](const auto& row) { return row.param; });

}  // namespace
}  // namespace ebb::test::strategies_test
