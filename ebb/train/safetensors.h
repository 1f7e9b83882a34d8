// SPDX-License-Identifier: Apache-2.0
// Files of named arrays in the safetensors format, which PyTorch and others read too; the format is
// described at https://github.com/huggingface/safetensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace ebb {

enum class TensorType { f32, f64, i64, i32, u8 };

// A named array in row-major order. Its bytes belong to the caller and need not be aligned; or they
// are in a file yet, and there is `read`.
struct TensorView {
  std::string name;
  TensorType type = TensorType::f32;
  std::vector<std::int64_t> shape;  // empty: one number
  std::span<const std::byte> bytes;
  // Reads all of them; throws Error(io).
  std::function<void(std::span<std::byte> to)> read = {};
};

template <class Number>
constexpr TensorType tensor_type() {
  if constexpr (std::is_same_v<Number, float>) return TensorType::f32;
  if constexpr (std::is_same_v<Number, double>) return TensorType::f64;
  if constexpr (std::is_same_v<Number, std::int64_t>) return TensorType::i64;
  if constexpr (std::is_same_v<Number, std::int32_t>) return TensorType::i32;
  if constexpr (std::is_same_v<Number, std::uint8_t>) return TensorType::u8;
}

template <class Number>
TensorView view_tensor(std::string name, std::vector<std::int64_t> shape,
                       std::span<const Number> numbers) {
  return {std::move(name), tensor_type<Number>(), std::move(shape), std::as_bytes(numbers), {}};
}

// Throws Error(invalid_argument) when there is none of that name.
const TensorView& find_tensor(std::span<const TensorView> tensors, std::string_view name);

// Throws Error(invalid_argument) unless the tensor has the type and as many numbers as `wanted`.
void check_tensor(const TensorView& tensor, const TensorView& wanted);
// For the five types, from memory or a file. Throws Error(invalid_argument) for another type or another
// count of numbers.
template <class Number>
void copy_tensor(const TensorView& tensor, std::span<Number> to);

using TensorNotes = std::map<std::string, std::string>;  // the format's __metadata__

// Hands a file's bytes to `sink`, piece after piece. Arrays of larger numbers come first, then by
// name, so that each is aligned in the file; the same tensors in any order give the same bytes.
// Throws Error(invalid_argument) before the first piece: names that are given twice, are
// "__metadata__" or not UTF-8, shapes that do not match the bytes, more than 100 MB of names.
void write_safetensors(std::span<const TensorView> tensors, const TensorNotes& notes,
                       const std::function<void(std::span<const std::byte>)>& sink);

struct Safetensors {
  std::vector<TensorView> tensors;  // in the order of their bytes
  TensorNotes notes;
};

// The tensors look into `file`. Throws Error(invalid_argument) that opens with `what` for bytes that
// are not a whole safetensors file and nothing else, and for types other than the five.
Safetensors read_safetensors(std::span<const std::byte> file, std::string_view what);
// The same, of a file of that many bytes that stays where it is: `read(from, to)` reads bytes of it,
// now those of the header, and those of a tensor when somebody copies it.
Safetensors open_safetensors(
    std::size_t size, const std::function<void(std::size_t from, std::span<std::byte> to)>& read,
    std::string_view what);

}  // namespace ebb
