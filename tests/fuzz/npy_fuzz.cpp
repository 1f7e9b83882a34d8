// SPDX-License-Identifier: Apache-2.0
// .npy files: any bytes, alone and as the header of a file, are read or refused with an Error, and
// what is read has as many numbers as its shape says.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "ebb/core/error.h"
#include "ebb/data/read_npy.h"

namespace {

void read(std::span<const std::byte> bytes) {
  try {
    const ebb::NumberArray array = ebb::read_npy(bytes, "file");
    const std::size_t numbers = array.count();
    if (ebb::count_within(array.shape, numbers) != numbers) std::abort();
  } catch (const ebb::Error&) {
  }
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): the name libFuzzer calls
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  read(bytes);
  std::string whole("\x93NUMPY\x01\x00", 8);
  whole += static_cast<char>(size & 0xff);
  whole += static_cast<char>(size >> 8 & 0xff);
  whole.append(reinterpret_cast<const char*>(data), size);
  whole += "0123456789abcdef";
  read(std::as_bytes(std::span(whole)));
  return 0;
}
