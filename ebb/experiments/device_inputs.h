// SPDX-License-Identifier: Apache-2.0
// Inputs of nets on a CUDA device that are made as they are asked for: some time steps that repeat, so that nothing of the sequence's
// length is in memory.
#pragma once

#include <cstdint>
#include <string>

#include "ebb/device/device_memory.h"
#include "ebb/run/device_network.h"

namespace ebb {

class RepeatedInputs {
 public:
  // Of `number`, as in DeviceNetworkOptions: spikes of that rate, above 0 and up to 1, or, with a rate of 0, numbers from -1 to 1.
  RepeatedInputs(std::int64_t batch, std::int64_t inputs, const std::string& number, double rate);
  RepeatedInputs(const RepeatedInputs&) = delete;
  RepeatedInputs& operator=(const RepeatedInputs&) = delete;

  // For DeviceNetwork::forward_from; these must outlive what it starts.
  DeviceInputs function() const;

 private:
  Bytes row_;  // bytes of a time step
  DeviceMemory memory_;
};

}  // namespace ebb
