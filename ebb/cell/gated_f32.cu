// SPDX-License-Identifier: Apache-2.0
#include "ebb/cell/gated_launch.cuh"

template struct ebb::gated::OfNumber<ebb::gated::Exact>;
