// SPDX-License-Identifier: Apache-2.0
#include "ebb/experiments/device_inputs.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "ebb/core/half_math.h"
#include "ebb/core/random.h"
#include "ebb/device/cuda_arrays.h"

namespace ebb {
namespace {

constexpr std::uint64_t kInputSeed = 1;
constexpr std::int64_t kTimeSteps =
    512;  // as the longest chunk, which then takes two copies at most

CudaNumber number_of(const std::string& word) {
  if (word == "bf16") return CudaNumber::bf16;
  return word == "f16" ? CudaNumber::f16 : CudaNumber::f32;
}

void put(CudaNumber number, float value, std::byte* to) {
  if (number == CudaNumber::f32) {
    std::memcpy(to, &value, sizeof value);
    return;
  }
  const std::uint16_t half = number == CudaNumber::bf16 ? to_bf16(value) : to_fp16(value);
  std::memcpy(to, &half, sizeof half);
}

}  // namespace

RepeatedInputs::RepeatedInputs(std::int64_t batch, std::int64_t inputs, const std::string& number,
                               double rate)
    : row_(batch * inputs * bytes_of(number_of(number))), memory_(kTimeSteps * row_) {
  const CudaNumber own = number_of(number);
  const auto each = static_cast<std::size_t>(bytes_of(own));
  const Random random(kInputSeed, 0);
  std::vector<std::byte> made(static_cast<std::size_t>(memory_.size()));
  for (std::size_t i = 0; i < made.size() / each; ++i) {
    const double drawn = random.uniform(i);
    const double value = rate > 0 ? (drawn < rate ? 1 : 0) : 2 * drawn - 1;
    put(own, static_cast<float>(value), made.data() + i * each);
  }
  memory_.upload(made);
}

DeviceInputs RepeatedInputs::function() const {
  return [this](std::int64_t first, std::int64_t steps, void* x, void* stream) {
    auto* to = static_cast<std::byte*>(x);
    while (steps > 0) {
      const std::int64_t from = first % kTimeSteps, count = std::min(steps, kTimeSteps - from);
      cuda_copy(to, memory_.data() + from * row_, count * row_, stream);
      to += count * row_;
      first += count;
      steps -= count;
    }
  };
}

}  // namespace ebb
