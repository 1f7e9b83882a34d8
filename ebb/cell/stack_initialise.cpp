// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "ebb/cell/stack.h"
#include "ebb/core/random.h"

namespace ebb {

template <class Number>
void Stack<Number>::initialise(std::uint64_t seed, Number* parameters) const {
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    const NamedParameter& own = parameters_[p];
    Number* const values = parameters + own.offset;
    const Layer<Number>& layer = layers_[static_cast<std::size_t>(own.layer)];
    const LayerOptions& options = layer.options();
    if (own.inputs == 0) {
      std::fill_n(values, own.size, static_cast<Number>(own.value));
      continue;
    }
    const bool is_bias = own.name.starts_with("bias");
    // Of sparse weights those that are there.
    const double full = static_cast<double>(layer.shape().gates * options.hidden);
    const double inputs =
        is_bias ? static_cast<double>(own.inputs) : static_cast<double>(own.size) / full;
    double bound =
        1 / std::sqrt(layer.facts().is_readout ? inputs : static_cast<double>(options.hidden));
    if (layer.shape().spikes) bound = is_bias ? 0 : std::sqrt(3 / std::max(inputs, 1.0));
    if (!is_bias) bound *= options.weight_scale;
    const Random random(seed, p);
    for (std::int64_t i = 0; i < own.size; ++i) {
      const double drawn = 2 * random.uniform(static_cast<std::uint64_t>(i)) - 1;
      values[i] = static_cast<Number>(bound * drawn);
    }
    const int gate = layer.facts().memory_gate;
    if (gate >= 0 && own.name.starts_with("bias_ih")) {
      for (std::int64_t u = 0; u < options.hidden; ++u) {
        values[gate * options.hidden + u] += static_cast<Number>(options.forget_bias);
      }
    }
  }
}

template void Stack<float>::initialise(std::uint64_t, float*) const;
template void Stack<double>::initialise(std::uint64_t, double*) const;

}  // namespace ebb
