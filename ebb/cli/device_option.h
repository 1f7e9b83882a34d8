// SPDX-License-Identifier: Apache-2.0
// The value of --device: where a command runs.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>

namespace ebb {

class Heading;

// Declares --device, whose word is left out for the CPU.
void declare_device(Heading& heading, std::optional<std::string>& word);

// The number of a CUDA device, 0 where none is named; none: the CPU. Words and errors are those of parse_training_device.
std::optional<int> read_device(const std::optional<std::string>& word);

// Makes it the one that everything runs on. Throws Error(unavailable) that says why there is none.
void use_cuda_device(int device);

// Options that only one kind of device has, and whether they were given. Throws Error(invalid_argument) for the first that was.
struct GivenOption {
  const char* name;
  bool given;
};
void refuse_options_of(const char* device, std::initializer_list<GivenOption> options);

}  // namespace ebb
