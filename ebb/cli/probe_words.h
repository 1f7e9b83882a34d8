// SPDX-License-Identifier: Apache-2.0
// The words of `ebb probe`, as they are given.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace ebb {

struct ProbeWords {
  std::optional<std::string> device, state, steps, sweeps, budget, chain_out, platform_out;
  std::vector<std::string> tiers;
  bool json = false;
};

// For --chain-out and --platform-out. Throws Error(io) that names the option and the file.
void write_answer_file(const char* option, const std::string& path, const std::string& text);

}  // namespace ebb
