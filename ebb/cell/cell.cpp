// SPDX-License-Identifier: Apache-2.0
#include "ebb/cell/cell.h"

#include "ebb/cell/cell_table.h"

namespace ebb {
namespace {

std::vector<CellRow> cell_rows() {
  std::vector<CellRow> rows;
  for (std::size_t c = 0; c < kCellCount; ++c) {
    const CellFacts& own = kCellFacts[c];
    // A synaptic one has the name of the row before it, and one number more.
    if (own.synaptic) rows.pop_back();
    CellRow& row = rows.emplace_back();
    row.name = own.name;
    row.what = own.what;
    row.spikes = kCellShapes[c].spikes;
    row.is_readout = own.is_readout;
    row.has_forget_bias = own.memory_gate >= 0;
    if (kCellShapes[c].events) {
      row.surrogate = surrogates()[static_cast<std::size_t>(own.surrogate)].name;
    }
    for (const UnitNumber& number : own.units) {
      if (number.name.empty()) break;
      row.parameters.push_back({std::string(number.name), number.value, number.is_time_constant()});
    }
  }
  return rows;
}

}  // namespace

const std::vector<CellRow>& cells() {
  static const std::vector<CellRow> rows = cell_rows();
  return rows;
}

const std::vector<SurrogateRow>& surrogates() {
  static const std::vector<SurrogateRow> rows = {
      {"fast_sigmoid", "1 / (1 + k |x|)^2", 25, false},
      {"superspike", "k / (1 + |x|)^2", 1, false},
      {"arctan", "(k/2) / (1 + (pi k x / 2)^2)", 2, false},
      {"triangular", "k max(0, 1 - |x|)", 0.3, true},
      {"boxcar", "1 for |x| <= k, else 0", 0.5, true},
      {"multi_gaussian", "Yin 2021: a bell of width k less two of 6 k beside it, height 0.15", 0.5,
       false},
  };
  return rows;
}

}  // namespace ebb
