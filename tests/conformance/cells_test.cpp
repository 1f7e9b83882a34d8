// SPDX-License-Identifier: Apache-2.0
// Every cell as a Network under every strategy: the same bits as storing everything, forwards and
// peaks as replay says. A new row of the table of cells is walked without an edit here.
#include <gtest/gtest.h>

#include <algorithm>

#include "ebb/cell/cell_table.h"
#include "tests/conformance/walk.h"
#include "tests/thorough.h"

namespace ebb {

// NOLINTNEXTLINE(readability-identifier-naming): GoogleTest's name
static void PrintTo(const CellFacts& cell, std::ostream* out) {
  *out << cell.name << (cell.synaptic ? "_synaptic" : "");
}

namespace test::cells_test {
namespace {

class Cells : public testing::TestWithParam<CellFacts> {};

TEST_P(Cells, SameBitsWithEveryStrategy) {
  const auto step = cell_step(GetParam(), thorough() ? 20 : 9);
  const Results expected = stored_all(*step);
  int runs = 0;
  for (const StrategyRow& strategy : strategies()) {
    RunOptions options = planned(*step, {memory_tier(64_MiB)});
    const std::string name(strategy.name);
    const std::vector<Bytes> all = budgets(*step, options, name);
    if (all.empty()) continue;
    options.strategy = name;
    options.budget = all[all.size() / 2];
    SCOPED_TRACE(name + ", " + std::to_string(options.budget) + " bytes");
    check(*step, options, expected);
    ++runs;
  }
  EXPECT_GE(runs, 10);
  // Gradients that are all 0 would agree with anything.
  for (std::size_t p = 0; p < expected.gradients.size(); ++p) {
    EXPECT_TRUE(
        std::ranges::any_of(expected.gradients[p], [](std::byte b) { return b != std::byte{}; }))
        << "no gradient of parameter " << p;
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, Cells, testing::ValuesIn(kCellFacts),
                         [](const auto& row) { return testing::PrintToString(row.param); });

}  // namespace
}  // namespace test::cells_test
}  // namespace ebb
