// SPDX-License-Identifier: Apache-2.0
// x86-64 and ARM64 give the same bytes: checksums recorded once, on ARM64. Those of zstd and lz4
// depend on the library's version, and are theirs to keep.
#include <gtest/gtest.h>

#include "ebb/core/checksum.h"
#include "tests/codec/fields_of_elements.h"

namespace ebb::test::same_bits_test {
namespace {

struct Recorded {
  const char* words;
  std::uint32_t f32, f64;
};

template <class T>
std::uint32_t checksum(const char* words) {
  const auto codec = make_codec(words, kElement<T>);
  const bool for_spikes = std::string_view(words) == "bits" || std::string_view(words) == "events";
  const Field field = bytes_of(for_spikes ? spikes<T>(10'007, 0.1, 1) : numbers<T>(10'007, 1));
  const Field to = encoded(*codec, field);
  return crc32c(decoded(*codec, to, field.size()), crc32c(to));
}

TEST(SameBits, OnEveryMachine) {
  const Recorded all[] = {
      {"bf16", 0xE68B5EF0, 0x6195AA44},   {"fp16", 0x1D5E03A7, 0xB8850DC6},
      {"int8", 0xE7D09B9A, 0x77797F77},   {"bits", 0x572543B9, 0x4DE3D605},
      {"events", 0x3CB5E4C5, 0xBB78C866}, {"pool:2", 0xAED38944, 0x55157954},
      {"pool:3", 0x6219AF2A, 0x249CB2C1},
  };
  for (const Recorded& one : all) {
    EXPECT_EQ(checksum<float>(one.words), one.f32) << one.words;
    EXPECT_EQ(checksum<double>(one.words), one.f64) << one.words;
  }
}

}  // namespace
}  // namespace ebb::test::same_bits_test
