// SPDX-License-Identifier: Apache-2.0
// What a device is measured with, and what comes of it: on a GPU, and on a device that the host plays.
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <vector>

#include "ebb/core/error.h"
#include "ebb/device/cuda_arrays.h"
#include "ebb/device/cuda_probe.h"
#include "ebb/device/cuda_stream.h"
#include "ebb/device/device_memory.h"
#include "ebb/run/device_profile.h"

namespace ebb::test::cuda_probe_test {
namespace {

class CudaProbe : public testing::Test {
 protected:
  void SetUp() override {
    const std::string missing = cuda_missing();
    if (!missing.empty()) GTEST_SKIP() << missing;
  }
};

TEST_F(CudaProbe, FactsAreThoseOfTheDevice) {
  const CudaFacts facts = cuda_facts();
  EXPECT_FALSE(facts.name.empty());
  EXPECT_GE(facts.major, 8);
  EXPECT_GT(facts.processors, 0);
  EXPECT_GT(facts.cache, 0);
  EXPECT_GT(facts.memory, facts.cache);
  EXPECT_GT(facts.unused, 0);
  EXPECT_LE(facts.unused, facts.memory);
  EXPECT_GE(cuda_device_count(), 1);
  set_cuda_device(0);
  EXPECT_EQ(cuda_device(), 0);
}

// Also numbers that no thread and no round of threads divides.
TEST_F(CudaProbe, CopiesEveryByteAndNoOther) {
  for (const Bytes bytes : {16_B, 4096_B, 1_MiB + 16, 24_MiB + 48}) {
    std::vector<std::uint32_t> from(static_cast<std::size_t>(bytes / 4)), to(from.size() + 4);
    std::iota(from.begin(), from.end(), 1U);
    DeviceMemory source(bytes), target(bytes + 16);
    source.upload(from);
    cuda_copy_again(target.data(), source.data(), bytes, 3, nullptr);
    cuda_wait(nullptr);
    target.download(to);
    EXPECT_EQ(std::vector(to.end() - 4, to.end()), std::vector<std::uint32_t>(4)) << bytes;
    to.resize(from.size());
    EXPECT_EQ(to, from) << bytes;
  }
}

TEST_F(CudaProbe, WaitsForAStream) {
  const CudaStream stream;
  DeviceMemory memory(4);
  cuda_launch_nothing(stream.get());
  cuda_fill(CudaNumber::f32, memory.data(), 3, 1, stream.get());
  cuda_wait(stream.get());
  std::vector<float> found(1);
  memory.download(found);
  EXPECT_EQ(found[0], 3);
}

TEST_F(CudaProbe, AProfileHasARateForEveryWay) {
  const Bytes before = cuda_free_bytes();
  DeviceProfileOptions options;
  options.largest = 64_MiB;
  options.copied = 64_MiB;
  options.transfer = 4_MiB;
  options.repeat = 2;
  const DeviceProfile found = profile_device(options);
  EXPECT_FALSE(found.copies.empty());
  for (const DeviceProfile::Copies& each : found.copies) EXPECT_GT(each.rate, 0) << each.set;
  EXPECT_LE(found.copies.back().set, options.largest);
  EXPECT_EQ(found.memory_rate, found.copies.back().rate);
  for (const double each :
       {found.to_host.rate, found.to_device.rate, found.both_rate, found.to_host.latency,
        found.to_device.latency, found.launch_seconds, found.answer_seconds}) {
    EXPECT_GT(each, 0);
  }
  // The driver may have taken some for streams and kernels meanwhile.
  EXPECT_GE(cuda_free_bytes(), before - 32_MiB) << "memory is given back";
  check_platform(platform_of(found));
}

TEST(DeviceProfile, SaysWhyThereIsNoDevice) {
  const std::string missing = cuda_missing();
  if (missing.empty()) GTEST_SKIP() << "there is a device";
  try {
    profile_device();
    FAIL() << "it was measured";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unavailable);
    EXPECT_NE(std::string(error.what()).find(missing), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace ebb::test::cuda_probe_test
