// SPDX-License-Identifier: Apache-2.0
// Measures a CUDA device as profile.h measures steps and tiers: how fast bytes are copied within its memory and within its L2 cache, and
// to and from pinned memory of the host, and what a call takes.
#pragma once

#include <vector>

#include "ebb/core/bytes.h"
#include "ebb/device/cuda_probe.h"
#include "ebb/plan/platform.h"

namespace ebb {

struct DeviceProfileOptions {
  Bytes largest = 1_GiB;    // working set
  Bytes copied = 4_GiB;     // in each measurement within the device
  Bytes transfer = 64_MiB;  // to or from the host
  int repeat = 5;           // the best of this many
};

struct DeviceProfile {
  CudaFacts facts;

  // Bytes copied a second, each of which is read once and written once.
  struct Copies {
    Bytes set = 0;  // all bytes that are touched, half of them read and half written
    double rate = 0;
  };
  std::vector<Copies> copies;  // over and over in one kernel; smallest set first
  double cache_rate = 0;       // the best of sets that fit the L2 cache; 0: none was tried
  double memory_rate = 0;      // of the largest

  struct Way {
    double rate = 0;     // bytes a second, of a long copy
    double latency = 0;  // seconds until the host knows that a copy of 64 bytes is done
  };
  Way to_host, to_device;
  double both_rate = 0;  // both ways at once, bytes of both
  bool pinned = true;    // false: the system gave no pinned memory, and common memory was measured

  double launch_seconds = 0;  // a kernel that does nothing, one after the other
  double answer_seconds = 0;  // until the host knows that it is done

  // Both ways at once move clearly more than one.
  bool duplex() const;
};

// Of the device that is current. Takes up to largest + 2 * transfer of its memory and 2 * transfer of the host's; less where the device
// has less. Throws Error(unavailable) where there is no CUDA or no device, Error(device) and Error(out_of_memory) where CUDA fails.
DeviceProfile profile_device(const DeviceProfileOptions& options = {});

// For plans: the device's memory over one tier, the host's memory.
Platform platform_of(const DeviceProfile& found);

}  // namespace ebb
