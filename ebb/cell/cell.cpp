// SPDX-License-Identifier: Apache-2.0
#include "ebb/cell/cell.h"

namespace ebb {

const std::vector<CellRow>& cells() {
  static const std::vector<CellRow> rows = {
      {"rnn", "Elman's unit, tanh, as torch.nn.RNN", false, {}},
      {"rnn_relu", "the same with max(x, 0)", false, {}},
      {"lstm", "long short-term memory, as torch.nn.LSTM", false, {}},
      {"gru", "gated recurrent unit, as torch.nn.GRU", false, {}},
      {"lif",
       "leaky integrate-and-fire neuron",
       true,
       {{"threshold", 1, false}, {"tau_mem", 20, true}, {"tau_syn", 5, true}}},
      {"alif",
       "with an adaptive threshold (Bellec 2018, Yin 2021)",
       true,
       {{"threshold", 1, false},
        {"tau_mem", 20, true},
        {"tau_adp", 150, true},
        {"beta", 1.8, false}}},
      {"adlif",
       "with an adaptation current (Bittar and Garner 2022)",
       true,
       {{"threshold", 1, false},
        {"tau_mem", 20, true},
        {"tau_adp", 100, true},
        {"a", 0.5, false},
        {"b", 1, false}}},
      {"egru", "event-based GRU (Subramoney et al. 2022)", false, {{"threshold", 0.1, false}}},
      {"linear", "readout without memory", false, {}},
      {"leaky", "readout that integrates", false, {{"tau_mem", 20, true}}},
  };
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
