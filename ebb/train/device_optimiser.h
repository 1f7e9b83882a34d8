// SPDX-License-Identifier: Apache-2.0
// An optimiser whose state is on a CUDA device: the arithmetic is that of Optimiser<float>. Private.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ebb/device/device_memory.h"
#include "ebb/run/network.h"
#include "ebb/train/optimiser.h"

namespace ebb {

class DeviceOptimiser {
 public:
  // For parameters in that order. Throws like DeviceMemory.
  DeviceOptimiser(const OptimiserOptions& options, std::span<const NetworkParameter> layout);

  // As Optimiser::step, for arrays on the device; what does not learn stays as it is. Waits for the gradient, which is given in units
  // of 1 / `scaled`, a power of two.
  double step(float* values, const float* gradient, double rate, double scaled = 1);

  // To and from one with the same options on the host.
  void fetch(Optimiser<float>& to) const;
  void take(const Optimiser<float>& from);

  static Bytes bytes(const OptimiserOptions& options, std::int64_t parameters);

 private:
  struct Part {
    std::int64_t offset = 0, size = 0;
  };
  // That of a tensor of Optimiser::state; null for the number of steps.
  const DeviceMemory* moment(const TensorView& tensor) const;

  OptimiserOptions options_;
  std::vector<Part> learning_;
  std::int64_t parameters_ = 0, steps_ = 0;
  DeviceMemory first_, second_, sums_;
};

}  // namespace ebb
