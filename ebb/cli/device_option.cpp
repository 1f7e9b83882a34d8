// SPDX-License-Identifier: Apache-2.0
#include "ebb/cli/device_option.h"

#include <string_view>

#include "ebb/cli/heading.h"
#include "ebb/core/error.h"
#include "ebb/core/words.h"
#include "ebb/device/device_memory.h"

namespace ebb {

void declare_device(Heading& heading, std::optional<std::string>& word) {
  heading.option("--device", word, "WHERE",
                 "cpu, cuda or cuda:N, a GPU by its number; default\ncpu");
}

std::optional<int> read_device(const std::optional<std::string>& word) {
  constexpr std::string_view cuda = "cuda", numbered = "cuda:";
  constexpr std::int64_t most = 1023;
  if (!word || *word == "cpu") return std::nullopt;
  if (*word == cuda) return 0;
  if (word->starts_with(numbered)) {
    return static_cast<int>(read_count("--device cuda:N", word->substr(numbered.size()), 0, most));
  }
  fail(ErrorCode::invalid_argument, "--device is '", shown(*word),
       "'; it must be cpu, cuda or cuda:N");
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
