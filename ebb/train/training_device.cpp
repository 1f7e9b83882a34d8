// SPDX-License-Identifier: Apache-2.0
#include "ebb/train/training_device.h"

#include <charconv>

#include "ebb/core/error.h"
#include "ebb/core/words.h"

namespace ebb {

TrainingDevice parse_training_device(std::string_view word) {
  using Kind = TrainingDevice::Kind;
  if (word == "cpu") return {Kind::cpu};
  if (word == "cuda") return {Kind::cuda};
  if (word == "auto") return {Kind::any};
  constexpr std::string_view numbered = "cuda:";
  if (word.starts_with(numbered)) {
    const std::string_view number = word.substr(numbered.size());
    int index = -1;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), index);
    if (error == std::errc{} && end == number.data() + number.size() && index >= 0) {
      return {Kind::cuda, index};
    }
  }
  fail(ErrorCode::invalid_argument, "device is '", shown(word),
       "'; it must be cpu, cuda, cuda:N with the number of a device, such as cuda:1, or auto");
}

}  // namespace ebb
