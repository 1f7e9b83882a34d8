// SPDX-License-Identifier: Apache-2.0
#include "ebb/cell/spiking_launch.cuh"

template struct ebb::gated::OfSpikes<__half>;
