// SPDX-License-Identifier: Apache-2.0
// The JSON header of a safetensors file, and the words of the format. Private.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/core/bytes.h"
#include "ebb/train/safetensors.h"

namespace ebb {

inline constexpr std::string_view kNotesKey = "__metadata__";
inline constexpr std::size_t kMostHeaderBytes = 100'000'000;

struct TensorTypeRow {
  TensorType type;
  std::string_view word;
  Bytes bytes;  // of one number
};
const TensorTypeRow& tensor_type_row(TensorType type);

// nothing: a negative extent, or more than 2^63-1 bytes.
std::optional<Bytes> tensor_bytes(TensorType type, std::span<const std::int64_t> shape);

struct HeaderTensor {
  TensorView view;  // without bytes
  Bytes begin = 0, end = 0;
};
struct TensorHeader {
  std::vector<HeaderTensor> tensors;  // in the order of the text; offsets as they are given
  TensorNotes notes;
};
// Throws Error(invalid_argument) that opens with `what`. Takes time in proportion to the text.
TensorHeader parse_tensor_header(std::string_view text, std::string_view what);

// A name from a file, fit for a message.
std::string shown_name(std::string_view name);

}  // namespace ebb
