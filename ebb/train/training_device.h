// SPDX-License-Identifier: Apache-2.0
// Where a net is trained, or a command runs, as people say it.
#pragma once

#include <string>
#include <string_view>

namespace ebb {

struct TrainingDevice {
  enum class Kind { cpu, cuda, any };  // any: a CUDA device if there is one that runs the net
  Kind kind = Kind::cpu;
  int index = -1;  // of a CUDA device; -1: as many as there are, by the processes' ranks
};

// "cpu", "cuda", "cuda:1" or "auto". Throws Error(invalid_argument) for other words.
TrainingDevice parse_training_device(std::string_view word);

}  // namespace ebb
