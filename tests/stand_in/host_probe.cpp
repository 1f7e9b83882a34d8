// SPDX-License-Identifier: Apache-2.0
// What is measured of the device that the host plays.
#include "ebb/device/cuda_probe.h"

#include <cstring>

#include "ebb/device/device_memory.h"
#include "tests/stand_in/host_device.h"
#include "tests/stand_in/host_queue.h"

namespace ebb {

CudaFacts cuda_facts() {
  CudaFacts facts;
  facts.name = cuda_device_name();
  facts.major = 9;
  facts.processors = 1;
  facts.memory = test::kHostDeviceBytes;
  facts.unused = cuda_free_bytes();
  facts.cache = test::kHostCacheBytes;
  return facts;
}

void cuda_launch_nothing(void* stream) {
  test::queue_of(stream)->add([] {});
}

void cuda_copy_again(void* to, const void* from, Bytes bytes, std::int64_t times, void* stream) {
  const double rate =
      2 * bytes <= test::kHostCacheBytes ? test::kHostCacheRate : test::kHostMemoryRate;
  test::queue_of(stream)->add([=] { std::memcpy(to, from, static_cast<std::size_t>(bytes)); },
                              static_cast<double>(bytes) * static_cast<double>(times) / rate);
}

void cuda_wait(void* stream) { test::queue_of(stream)->run_all(); }

}  // namespace ebb
