// SPDX-License-Identifier: Apache-2.0
// A net's parameters as a checkpoint has them: under PyTorch's names. Private.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ebb/run/network.h"
#include "ebb/train/safetensors.h"

namespace ebb {

// Of a net of that many layers and a readout; the patterns of sparse weights are among them. They
// look into the network.
template <class Number>
std::vector<TensorView> model_tensors(Network<Number>& network, std::int64_t layers);

// Copies them into the network, but for the patterns, which the seed draws again. Throws
// Error(invalid_argument) if one is missing or of another size or type.
template <class Number>
void restore_model(Network<Number>& network, std::int64_t layers,
                   std::span<const TensorView> saved);

}  // namespace ebb
