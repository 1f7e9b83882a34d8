// SPDX-License-Identifier: Apache-2.0
// Steps to run plans on. Each is nonlinear in its state and its parameters and has different
// numbers at each step, so that any state, tape or order that is wrong shows in the gradients.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ebb/cell/cell_table.h"
#include "ebb/run/step.h"

namespace ebb::test {

// Gradients and outputs that a run leaves, beside the final state and the initial adjoint.
class TestStep : public Step {
 public:
  virtual std::string name() const = 0;
  virtual std::vector<std::byte> initial() const = 0;
  // One number for each step, written when it first ran: outputs must come once and in order.
  const std::vector<double>& outputs() const { return outputs_; }
  std::int64_t forwards() const { return forwards_; }

 protected:
  void output(std::int64_t step, double value) {
    // Handed out twice or out of order: the list shows it.
    outputs_.push_back(static_cast<double>(step) + 1e-3 * value);
  }
  void forget() {
    outputs_.clear();
    forwards_ = 0;
  }
  std::vector<double> outputs_;
  std::int64_t forwards_ = 0;
};

// States of 5 doubles; the tape is the states before and after.
std::unique_ptr<TestStep> small_step(std::int64_t steps);
// States of 3000 floats (12 000 bytes, no multiple of a page); the tape also keeps gates, and the
// state after the step lies in its middle; uses scratch.
std::unique_ptr<TestStep> gated_step(std::int64_t steps);
// Each step has a state, a tape and scratch of another size.
std::unique_ptr<TestStep> uneven_step(std::int64_t steps);
// A spiking layer: the state has a field of floats and one of 0 and 1 only, and so has the tape.
std::unique_ptr<TestStep> spiking_step(std::int64_t steps);
// A Network: spiking neurons below an LSTM, dropout between them, in single precision on two threads.
// Its tapes are used up when they are reversed.
std::unique_ptr<TestStep> network_step(std::int64_t steps);
// A Network of two layers of the cell below a readout, or, if it is one, of the cell on top.
std::unique_ptr<TestStep> cell_step(const CellFacts& cell, std::int64_t steps);
// The small step, but its length is found while it runs.
std::unique_ptr<TestStep> endless_step(std::int64_t ends_at);

}  // namespace ebb::test
