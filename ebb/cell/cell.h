// SPDX-License-Identifier: Apache-2.0
// Layers as a user describes them: a cell, its size and its constants.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ebb/cell/pattern.h"

namespace ebb {

struct LayerOptions {
  std::string cell = "lstm";  // a row of cells()
  std::int64_t input = 0;     // 0: as many as the layer below has units
  std::int64_t hidden = 0;    // units
  bool bias = true;

  // Weights that are there at all: given, or drawn at random with this density.
  double input_density = 1, recurrent_density = 1;
  std::optional<Pattern> input_pattern = {}, recurrent_pattern = {};
  std::uint64_t seed = 1;  // of the patterns drawn

  // To begin with: weights times this; the bias of the gate that keeps the memory (lstm's f, gru's z).
  double weight_scale = 1, forget_bias = 0;

  // Cells that spike, and egru where a row says so.
  bool recurrent = true;        // false: no weights among the units of the layer
  bool synaptic = false;        // lif: the input goes through a current that decays
  bool hard_reset = false;      // a spike sets the membrane to `rest`, not takes the threshold off
  bool attached_reset = false;  // gradients go through the reset
  bool normalised = true;       // the input counts by 1 - e^(-1/tau_mem)
  double rest = 0;              // where a hard reset goes
  std::string surrogate = {};   // a row of surrogates(); empty: the cell's own
  std::optional<double> sharpness = {};
  // A second threshold (papers of Finkbeiner, Neftci et al.): membranes below it get no gradient
  // through the spike.
  std::optional<double> gradient_threshold = {};
  // At most this share of the units is heard at a time step, and passes gradients: the largest even
  // number of units within it, lowest first, spikes before membranes above the second threshold.
  double max_activity = 1;

  // Of each unit; what is left out has the cell's value (cells()). Time constants are in time steps.
  std::optional<double> threshold = {}, tau_mem = {}, tau_syn = {}, tau_adp = {}, beta = {}, a = {},
                        b = {};
  bool train_tau = false;        // the time constants, beta, a and b learn
  bool train_threshold = false;  // the threshold learns
};

// A number that each unit of a cell has.
struct UnitParameter {
  std::string name;  // as in LayerOptions
  double value;      // if left out
  bool is_time_constant;
};

struct CellRow {
  std::string name;
  std::string what;  // one line
  bool spikes;       // the output is a spike
  std::vector<UnitParameter> parameters;
  std::string surrogate;  // if left out; empty: it needs none
  bool is_readout;        // has no weights among its units
  bool has_forget_bias;   // a gate keeps its memory
};
const std::vector<CellRow>& cells();

struct SurrogateRow {
  std::string name;
  std::string what;  // psi(x) with k
  double sharpness;  // k if left out
  bool is_compact;   // 0 far from the threshold: backward skips what is 0
};
const std::vector<SurrogateRow>& surrogates();

}  // namespace ebb
