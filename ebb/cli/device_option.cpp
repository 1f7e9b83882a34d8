// SPDX-License-Identifier: Apache-2.0
#include "ebb/cli/device_option.h"

#include <algorithm>

#include "ebb/cli/heading.h"
#include "ebb/core/error.h"
#include "ebb/device/device_memory.h"
#include "ebb/train/training_device.h"

namespace ebb {

void declare_device(Heading& heading, std::optional<std::string>& word) {
  heading.option("--device", word, "NAME",
                 "cpu (default), cuda, cuda:N, or auto: a GPU if one\nis there");
}

std::optional<int> read_device(const std::optional<std::string>& word) {
  using Kind = TrainingDevice::Kind;
  const TrainingDevice device = parse_training_device(word.value_or("cpu"));
  const bool is_cpu = device.kind == Kind::any ? !cuda_missing().empty() : device.kind == Kind::cpu;
  if (is_cpu) return std::nullopt;
  return std::max(device.index, 0);
}

void use_cuda_device(int device) {
  const std::string missing = cuda_missing();
  if (!missing.empty()) fail(ErrorCode::unavailable, "--device cuda: ", missing);
  const int count = cuda_device_count();
  if (device >= count) {
    fail(ErrorCode::unavailable, "--device cuda:", device,
         ": there is no such device; the last is cuda:", count - 1);
  }
  set_cuda_device(device);
}

void refuse_options_of(const char* device, std::initializer_list<GivenOption> options) {
  for (const GivenOption& option : options) {
    if (!option.given) continue;
    fail(ErrorCode::invalid_argument, option.name, " is for --device ", device, " alone");
  }
}

}  // namespace ebb
