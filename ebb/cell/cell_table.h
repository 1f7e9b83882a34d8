// SPDX-License-Identifier: Apache-2.0
// The table of cells: a row has all that there is to say of a cell beside its mathematics. Lists,
// defaults, loops and tests follow from it.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <tuple>

#include "ebb/cell/adlif_math.h"
#include "ebb/cell/alif_math.h"
#include "ebb/cell/egru_math.h"
#include "ebb/cell/gru_math.h"
#include "ebb/cell/leaky_math.h"
#include "ebb/cell/lif_math.h"
#include "ebb/cell/lstm_math.h"
#include "ebb/cell/rnn_math.h"
#include "ebb/cell/surrogate.h"

namespace ebb {

inline constexpr int kMostOfUnit = 5;  // sums, fields, saved and parameters of a unit

// A number that each unit has, in the order of the mathematics.
struct UnitNumber {
  std::string_view name = {};  // as in LayerOptions; one that begins with "tau" is a time constant
  double value = 0;            // if left out

  constexpr bool is_time_constant() const { return name.starts_with("tau"); }
};

struct CellFacts {
  std::string_view name;
  std::string_view what;  // one line
  std::array<UnitNumber, kMostOfUnit> units = {};
  Surrogate surrogate = Surrogate::fast_sigmoid;  // of cells with events
  int memory_gate = -1;     // gate that keeps the memory: LayerOptions::forget_bias is its bias
  bool is_readout = false;  // has no weights among its units
  bool synaptic = false;    // what `name` is where LayerOptions::synaptic is true
};

template <class Mathematics>
struct CellEntry : CellFacts {
  using Math = Mathematics;
};

inline constexpr UnitNumber kThreshold{"threshold", 1}, kTauMem{"tau_mem", 20},
    kTauSyn{"tau_syn", 5};

inline constexpr std::tuple kCells{
    CellEntry<RnnMath<false>>{{"rnn", "Elman's unit, tanh, as torch.nn.RNN"}},
    CellEntry<RnnMath<true>>{{"rnn_relu", "the same with max(x, 0)"}},
    CellEntry<LstmMath>{
        {.name = "lstm", .what = "long short-term memory, as torch.nn.LSTM", .memory_gate = 1}},
    CellEntry<GruMath>{
        {.name = "gru", .what = "gated recurrent unit, as torch.nn.GRU", .memory_gate = 1}},
    CellEntry<LifMath<false>>{{"lif", "leaky integrate-and-fire neuron", {kThreshold, kTauMem}}},
    CellEntry<LifMath<true>>{{.name = "lif",
                              .what = "leaky integrate-and-fire neuron",
                              .units = {kThreshold, kTauMem, kTauSyn},
                              .synaptic = true}},
    CellEntry<AlifMath>{{"alif",
                         "with an adaptive threshold (Bellec 2018, Yin 2021)",
                         {kThreshold, kTauMem, {"tau_adp", 150}, {"beta", 1.8}}}},
    CellEntry<AdlifMath>{{"adlif",
                          "with an adaptation current (Bittar and Garner 2022)",
                          {kThreshold, kTauMem, {"tau_adp", 100}, {"a", 0.5}, {"b", 1}}}},
    CellEntry<EgruMath>{{.name = "egru",
                         .what = "event-based GRU (Subramoney et al. 2022)",
                         .units = {{{"threshold", 0.1}}},
                         .surrogate = Surrogate::triangular}},
    CellEntry<ReadoutMath<false>>{
        {.name = "linear", .what = "readout without memory", .is_readout = true}},
    CellEntry<ReadoutMath<true>>{{.name = "leaky",
                                  .what = "readout that integrates",
                                  .units = {kTauMem},
                                  .is_readout = true}},
};

// Calls `call` with each row.
template <class Call>
constexpr auto with_cells(Call call) {
  return std::apply(call, kCells);
}

inline constexpr std::size_t kCellCount = std::tuple_size_v<decltype(kCells)>;

// The rows without their mathematics; places in it are those of kCells.
inline constexpr std::array<CellFacts, kCellCount> kCellFacts =
    with_cells([](const auto&... cell) { return std::array<CellFacts, kCellCount>{cell...}; });

// What loops and layouts need to know of a cell; the constants of its x_math.h.
struct CellShape {
  int gates = 0, sums = 0, fields = 0, saved = 0, parameters = 0;
  bool spikes = false;  // the output is a spike, kept as a bit; otherwise it is field 0
  bool events = false;  // most outputs are 0
};

inline constexpr std::array<CellShape, kCellCount> kCellShapes =
    with_cells([]<class... Math>(const CellEntry<Math>&...) {
      return std::array{CellShape{Math::kGates, Math::kSums, Math::kFields, Math::kSaved,
                                  Math::kParameters, Math::kSpikes, Math::kEvents}...};
    });

// A row names as many numbers of a unit as the mathematics reads.
static_assert([] {
  for (std::size_t c = 0; c < kCellCount; ++c) {
    int named = 0;
    for (const UnitNumber& own : kCellFacts[c].units) named += own.name.empty() ? 0 : 1;
    if (named != kCellShapes[c].parameters) return false;
    if (kCellFacts[c].memory_gate >= kCellShapes[c].gates) return false;
  }
  return true;
}());

}  // namespace ebb
