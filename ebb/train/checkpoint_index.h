// SPDX-License-Identifier: Apache-2.0
// train.json: the small file that says which generation of a checkpoint is the good one. Private.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "ebb/core/bytes.h"
#include "ebb/data/fingerprint.h"

namespace ebb {

inline constexpr std::string_view kIndexFile = "train.json";
inline constexpr std::string_view kModel = "model";
inline constexpr std::string_view kOptimiser = "optimiser";

struct CheckpointFile {
  std::string name;
  Bytes bytes = 0;
  std::uint32_t checksum = 0;  // crc32c
};

struct CheckpointIndex {
  std::int64_t iteration = 0;
  std::uint64_t seed = 0;
  std::string options;
  DataFingerprint data;
  CheckpointFile model, optimiser;
};

// "model-12.safetensors"
std::string generation_file(std::string_view part, std::int64_t generation);
// 0: no file of a generation.
std::int64_t generation_of(std::string_view part, std::string_view name);

// A JSON object whose last key, crc32c, is the checksum of all text before its line.
std::string to_text(const CheckpointIndex& index);
// Throws Error(invalid_argument) that opens with `what`, also for a text that is not to the byte what
// to_text made, and Error(unavailable) for a later format.
CheckpointIndex parse_index(std::string_view text, std::string_view what);

// Throws Error(io) unless the directory is there and has a train.json.
void check_has_checkpoint(const std::filesystem::path& directory);
// Of the checkpoint in the directory; nothing: it has no train.json. Throws as load_checkpoint.
std::optional<std::int64_t> saved_iteration(const std::filesystem::path& directory);

}  // namespace ebb
