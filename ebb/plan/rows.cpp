// SPDX-License-Identifier: Apache-2.0
#include "ebb/plan/rows.h"

#include <array>
#include <string>

#include "ebb/core/error.h"
#include "ebb/plan/binomial.h"
#include "ebb/plan/chain_mix.h"
#include "ebb/plan/hierarchy.h"
#include "ebb/plan/interval.h"
#include "ebb/plan/online.h"
#include "ebb/plan/slot_mix.h"
#include "ebb/plan/stream.h"
#include "ebb/plan/uniform_mix.h"

namespace ebb {
namespace {

constexpr std::string_view kGruslys = "Gruslys et al. 2016";
constexpr std::string_view kBencheikh = "Bencheikh et al. 2024";
constexpr std::string_view kNoPaper = "";
constexpr std::string_view kNotOptimal = "";
using Covered = Traits::Covered;
using Intervals = Traits::Intervals;

template <IntervalFamily family>
Draft intervals(const Problem& p) {
  return draft_interval(p, family);
}
template <IntervalFamily family>
Bytes least_intervals(const Problem& p) {
  return least_interval(p, family);
}
constexpr IntervalFamily kSingleLocal{true, false, 1, 1};
constexpr IntervalFamily kSingleRemote{false, true, 1, 1};
constexpr IntervalFamily kSingle{true, true, 1, 1};
constexpr IntervalFamily kDoubleLocal{true, false, 2, 2};
constexpr IntervalFamily kDouble{true, true, 2, 2};
constexpr IntervalFamily kLevels{true, true, 1, 4};
constexpr IntervalFamily kLevelsBinomial{true, true, 1, 2, true};

constexpr std::array kTable = std::to_array<Row>({
    {{"store_all", "mix", "keep every tape: plain backpropagation", kNoPaper, "any", true, false},
     draft_store_all,
     least_store_all},
    {{"constant", "binomial", "keep nothing but the initial state", kNoPaper, "no checkpoints",
      false, false},
     draft_constant,
     least_binomial,
     {.covered = Covered::yes}},
    {{"revolve", "binomial", "states in slots, binomial schedule", "Griewank & Walther 2000",
      "states only, uniform steps", false, false},
     draft_hsm,
     least_binomial},
    {{"hsm", "binomial", "hidden states in slots; the schedule of revolve", kGruslys,
      "states only, uniform steps", false, false},
     draft_hsm,
     least_binomial,
     {.covered = Covered::yes}},
    {{"ism", "binomial", "tapes in slots", kGruslys, "tapes only, uniform steps", true, false},
     draft_ism,
     least_binomial},
    {{"msm", "mix", "states and tapes by the published recurrence", kGruslys, kNotOptimal, true,
      false},
     draft_msm,
     least_binomial,
     {.table = true}},
    {{"mixed", "mix", "equal slots for states or tapes that do not restart", "Maddison 2024",
      "equal slots, charged start, uniform steps", true, false},
     draft_mixed,
     least_mixed,
     {.charges_start = true, .table = true}},
    {{"chain", "mix", "states and tapes, every step with its own costs",
      "Beaumont et al. 2019 (rotor)", kNotOptimal, true, false},
     draft_chain,
     least_chain,
     {.table = true}},
    {{"sqrt", "interval", "a state every sqrt(N) steps, chunks recorded whole", "Chen et al. 2016",
      kNotOptimal, true, false},
     draft_sqrt,
     least_sqrt,
     {.intervals = Intervals::one}},
    {{"single", "interval", "one level of states, local or remote", kBencheikh, kNotOptimal, true,
      false},
     intervals<kSingle>,
     least_intervals<kSingle>,
     {.covered = Covered::yes, .intervals = Intervals::some}},
    {{"single_local", "interval", "one level of states in fast", kBencheikh, kNotOptimal, true,
      false},
     intervals<kSingleLocal>,
     least_intervals<kSingleLocal>,
     {.covered = Covered::yes, .intervals = Intervals::some}},
    {{"single_remote", "interval", "one level of states in a slow tier", kBencheikh, kNotOptimal,
      true, true},
     intervals<kSingleRemote>,
     least_intervals<kSingleRemote>,
     {.covered = Covered::yes, .intervals = Intervals::some}},
    {{"double", "interval", "two levels of states, the coarse one remote or local", kBencheikh,
      kNotOptimal, true, false},
     intervals<kDouble>,
     least_intervals<kDouble>,
     {.covered = Covered::yes, .intervals = Intervals::some}},
    {{"double_local", "interval", "two levels of states in fast", kBencheikh, kNotOptimal, true,
      false},
     intervals<kDoubleLocal>,
     least_intervals<kDoubleLocal>,
     {.covered = Covered::yes, .intervals = Intervals::some}},
    {{"levels", "interval", "one to four levels of states", kBencheikh, kNotOptimal, true, false},
     intervals<kLevels>,
     least_intervals<kLevels>,
     {.intervals = Intervals::some}},
    {{"levels_binomial", "interval", "one or two levels of states, binomial slots inside",
      kBencheikh, kNotOptimal, false, false},
     intervals<kLevelsBinomial>,
     least_intervals<kLevelsBinomial>,
     {.intervals = Intervals::some}},
    {{"disk_revolve", "hierarchy", "states in fast and in the first slow tier", "Aupy et al. 2016",
      "states only, transfers in turn, uniform steps", false, true},
     draft_disk_revolve,
     least_disk_revolve,
     {.covered = Covered::with_one_tier}},
    {{"periodic_disk", "hierarchy", "a state to the first slow tier every period",
      "Aupy & Herrmann 2017", kNotOptimal, false, true},
     draft_periodic_disk,
     least_periodic_disk,
     {.period = true}},
    {{"h_revolve", "hierarchy", "states in any number of tiers", "Herrmann & Pallez 2020",
      "states only, transfers in turn, uniform steps", false, false},
     draft_h_revolve,
     least_h_revolve},
    {{"async", "stream", "states written and read ahead behind compute", "Kukreja et al. 2018",
      kNotOptimal, false, true},
     draft_async,
     least_stream,
     {.intervals = Intervals::one, .length_unknown = true}},
    {{"pofo", "stream", "tapes or states written and read ahead behind compute",
      "Beaumont et al. 2021", kNotOptimal, true, true},
     draft_pofo,
     least_stream,
     {.intervals = Intervals::one}},
    {{"online", "online", "states in slots while the length is unknown",
      "Stumm & Walther 2010; Wang et al. 2009", kNotOptimal, false, false},
     draft_online,
     least_online,
     {.length_unknown = true}},
    {{"auto", "all", "the fastest of all the others that fit", kNoPaper, kNotOptimal, false,
      false}},
});

constexpr auto kStrategies = [] {
  std::array<StrategyRow, kTable.size()> rows{};
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = kTable[i].row;
  return rows;
}();

}  // namespace

std::span<const Row> strategy_rows() { return kTable; }

std::span<const StrategyRow> strategies() { return kStrategies; }

const StrategyRow* find_strategy(std::string_view name) {
  for (const StrategyRow& row : kStrategies) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

const Row& row_named(std::string_view name) {
  for (const Row& row : kTable) {
    if (row.row.name == name) return row;
  }
  std::string names;
  for (const Row& row : kTable) names += (names.empty() ? "" : ", ") + std::string(row.row.name);
  fail(ErrorCode::invalid_argument, "strategy: there is no '", name, "'; choose one of ", names);
}

}  // namespace ebb
