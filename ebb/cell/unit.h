// SPDX-License-Identifier: Apache-2.0
// What a cell's mathematics sees: one unit of one sample at one time step. A cell is a struct of
// constants and two functions over these; rows.h runs them over all units.
#pragma once

#include "ebb/cell/surrogate.h"

namespace ebb {

// Constants of a layer, the same for all its units.
template <class Number>
struct Constants {
  Number hard = 0;        // 1: a spike sets the membrane to `rest`; 0: takes the threshold off it
  Number attached = 0;    // 1: gradients go through the reset
  Number normalised = 1;  // 1: the input counts by 1 - decay; 0: as it is
  Number rest = 0;        // where a hard reset goes
  Number sharpness = 0;   // k of the surrogate
  Number least = -1e30F;  // membranes below it get no gradient through the spike
};

// Going forward. Numbers of a unit that are kept in a state are its fields; a spike is no field.
template <class Number>
struct UnitForward {
  const Number* sums;        // of the products and biases
  const Number* before;      // fields
  Number spike_before;       // 0 or 1
  const Number* parameters;  // of the unit; a time constant comes as its decay e^(-1/tau)
  Number* after;             // fields
  Number* saved;             // what backward needs besides the fields
  Number spike;
};

// Going backward. `output` and `adjoint` belong to what comes after the step when called, to what was
// before it when done; recurrent products are added by the caller.
template <class Number>
struct UnitBackward {
  const Number* before;
  const Number* after;
  const Number* saved;
  Number spike_before;
  Number slope;  // of the output by the distance to the threshold; 0 where the unit's spike passes
                 // no gradient (see LayerOptions::max_activity)
  const Number* parameters;
  Number output;          // gradient of the spike, or of field 0 where there is no spike
  Number* adjoint;        // gradients of the fields; field 0's is `output` where it is the output
  Number* sums;           // result: gradients of the sums
  Number* of_parameters;  // result: added to the gradients of the unit's parameters
};

}  // namespace ebb
