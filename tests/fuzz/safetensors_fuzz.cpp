// SPDX-License-Identifier: Apache-2.0
// Safetensors files: any bytes are read or refused with an Error; what is read lies in the bytes and
// survives being written and read again.
#include "ebb/train/safetensors.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "ebb/core/error.h"

namespace {

bool same(const ebb::TensorView& a, const ebb::TensorView& b) {
  return a.name == b.name && a.type == b.type && a.shape == b.shape &&
         std::equal(a.bytes.begin(), a.bytes.end(), b.bytes.begin(), b.bytes.end());
}

void check(std::span<const std::byte> file) {
  const ebb::Safetensors read = ebb::read_safetensors(file, "file");
  std::vector<std::byte> again;
  ebb::write_safetensors(read.tensors, read.notes, [&again](std::span<const std::byte> bytes) {
    again.insert(again.end(), bytes.begin(), bytes.end());
  });
  const ebb::Safetensors twice = ebb::read_safetensors(again, "again");
  if (twice.notes != read.notes || twice.tensors.size() != read.tensors.size()) std::abort();
  for (const ebb::TensorView& tensor : read.tensors) {
    if (!same(tensor, ebb::find_tensor(twice.tensors, tensor.name))) std::abort();
  }
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): the name libFuzzer calls
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  try {
    check(bytes);
  } catch (const ebb::Error&) {
  }
  // The same text as a header of the right length, which chance seldom finds.
  std::vector<std::byte> file(8);
  for (std::size_t i = 0; i < 8; ++i) file[i] = static_cast<std::byte>(size >> (8 * i));
  file.insert(file.end(), bytes.begin(), bytes.end());
  file.insert(file.end(), size % 16, std::byte{1});
  try {
    check(file);
  } catch (const ebb::Error&) {
  }
  return 0;
}
