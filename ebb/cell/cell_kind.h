// SPDX-License-Identifier: Apache-2.0
// Which cells there are, for the rooms' own use; by name in cell.h.
#pragma once

namespace ebb {

enum class CellKind {
  rnn,
  rnn_relu,
  lstm,
  gru,
  lif,
  lif_synaptic,
  alif,
  adlif,
  egru,
  linear,
  leaky,
};

// What the loops need to know of a cell; the constants of its x_math.h.
struct CellShape {
  int gates = 0, sums = 0, fields = 0, saved = 0, parameters = 0;
  bool spikes = false;  // the output is a spike, kept as a bit; otherwise it is field 0
  bool events = false;  // most outputs are 0
};

CellShape shape_of(CellKind kind);

}  // namespace ebb
