// SPDX-License-Identifier: Apache-2.0
// An .npy file that is written piece by piece, in any order, and has its name once it is whole. Private.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "ebb/train/durable_file.h"

namespace ebb {

class NpyOutput {
 public:
  // `type` is NumPy's, such as "<f4". Everything throws Error(io) that names the path, or
  // Error(invalid_argument) unless it is a file, a link to one, or nothing yet.
  NpyOutput(const std::filesystem::path& path, std::string_view type, std::size_t number_bytes,
            std::span<const std::int64_t> shape);
  NpyOutput(const NpyOutput&) = delete;
  NpyOutput& operator=(const NpyOutput&) = delete;
  // Without finish() nothing is left.
  ~NpyOutput();

  // Numbers from that one on, in C's order.
  void write(std::int64_t first, std::span<const std::byte> numbers);
  // Every number has been written.
  void finish();

 private:
  std::filesystem::path path_, beside_;
  Descriptor file_;
  std::int64_t header_ = 0;
  std::size_t number_bytes_;
  bool is_finished_ = false;
};

}  // namespace ebb
