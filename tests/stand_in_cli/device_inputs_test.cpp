// SPDX-License-Identifier: Apache-2.0
// Inputs that are made on a device: here on one that the host plays.
#include "ebb/experiments/device_inputs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ebb/core/half_math.h"

namespace ebb::test::device_inputs_test {
namespace {

constexpr std::int64_t kBatch = 2, kInputs = 3, kRow = kBatch * kInputs;

std::vector<float> made(const RepeatedInputs& inputs, std::int64_t first, std::int64_t steps) {
  DeviceMemory memory(steps * kRow * 4);
  inputs.function()(first, steps, memory.data(), nullptr);
  std::vector<float> found(static_cast<std::size_t>(steps * kRow));
  memory.download(found);
  return found;
}

TEST(RepeatedInputs, AreTheSameHoweverTheyAreAskedFor) {
  const RepeatedInputs inputs(kBatch, kInputs, "f32", 0);
  const std::vector<float> all = made(inputs, 0, 1500);
  for (const auto& [first, steps] :
       {std::pair<std::int64_t, std::int64_t>{0, 1}, {7, 20}, {500, 24}, {510, 600}, {1499, 1}}) {
    const auto from = all.begin() + first * kRow;
    EXPECT_EQ(made(inputs, first, steps), std::vector(from, from + steps * kRow)) << first;
  }
  EXPECT_NE(made(inputs, 0, 1), made(inputs, 1, 1));
  EXPECT_LE(std::ranges::max(all), 1);
  EXPECT_GE(std::ranges::min(all), -1);
  EXPECT_LT(std::ranges::min(all), -0.9F);
}

TEST(RepeatedInputs, SpikeAtARate) {
  const RepeatedInputs inputs(kBatch, kInputs, "f32", 0.2);
  const std::vector<float> all = made(inputs, 0, 512);
  const auto spikes = std::ranges::count(all, 1.F);
  EXPECT_EQ(spikes + std::ranges::count(all, 0.F), static_cast<std::ptrdiff_t>(all.size()));
  EXPECT_NEAR(static_cast<double>(spikes) / static_cast<double>(all.size()), 0.2, 0.03);
}

TEST(RepeatedInputs, AreInTheNetworksNumber) {
  const std::vector<float> floats = made(RepeatedInputs(kBatch, kInputs, "tf32", 0), 0, 4);
  for (const char* const number : {"bf16", "f16"}) {
    const RepeatedInputs inputs(kBatch, kInputs, number, 0);
    DeviceMemory memory(4 * kRow * 2);
    inputs.function()(0, 4, memory.data(), nullptr);
    std::vector<std::uint16_t> found(floats.size());
    memory.download(found);
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i], number[0] == 'b' ? to_bf16(floats[i]) : to_fp16(floats[i])) << number;
    }
  }
}

}  // namespace
}  // namespace ebb::test::device_inputs_test
