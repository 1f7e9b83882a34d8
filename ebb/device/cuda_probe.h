// SPDX-License-Identifier: Apache-2.0
// What a CUDA device is, and work whose time says how fast it is: what run/device_profile.h measures with. All is about the device that is
// current. Throws Error(device) where CUDA fails, Error(unavailable) in a build without it.
#pragma once

#include <cstdint>
#include <string>

#include "ebb/core/bytes.h"

namespace ebb {

struct CudaFacts {
  std::string name;
  int major = 0, minor = 0;                 // compute capability
  int processors = 0;                       // multiprocessors
  Bytes memory = 0, unused = 0, cache = 0;  // all of it, what of it is free, the L2 cache
};
CudaFacts cuda_facts();

// A kernel that does nothing.
void cuda_launch_nothing(void* stream);
// Copies the same bytes, a multiple of 16, that many times in one kernel: a launch takes longer than copying what fits the L2 cache. Passes
// by the caches of multiprocessors. The ranges are of the device and do not overlap.
void cuda_copy_again(void* to, const void* from, Bytes bytes, std::int64_t times, void* stream);
// Until all is done that the stream has been given.
void cuda_wait(void* stream);

}  // namespace ebb
