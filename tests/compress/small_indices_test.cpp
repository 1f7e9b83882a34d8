// SPDX-License-Identifier: Apache-2.0
#include "ebb/compress/small_indices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "ebb/core/random.h"
#include "tests/message_of.h"

namespace ebb::test::small_indices_test {
namespace {

using testing::HasSubstr;

template <class Index>
void expect_back(std::int64_t count, int bits, int threads) {
  Workers workers(threads);
  const Random random(static_cast<std::uint64_t>(count));
  std::vector<Index> indices;
  for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(count); ++i) {
    indices.push_back(static_cast<Index>(random.below(i, std::uint64_t{1} << bits)));
  }
  const std::int64_t bytes = small_bytes(count, bits);
  EXPECT_EQ(bytes, (count * bits + 7) / 8);
  std::vector<std::uint8_t> packed(static_cast<std::size_t>(bytes) + 1, 77);
  std::vector<Index> back(indices.size(), Index{99});
  pack_small(workers, count, indices.data(), bits, packed.data());
  unpack_small(workers, count, packed.data(), bits, back.data());
  EXPECT_EQ(back, indices) << count << " of " << bits << " bits";
  EXPECT_EQ(packed.back(), 77);
}

TEST(SmallIndices, ComeBack) {
  for (const std::int64_t count : {0, 1, 2, 3, 4095, 4096, 4097, 20001}) {
    for (const int bits : {4, 8}) {
      for (const int threads : {1, 3}) {
        expect_back<std::int64_t>(count, bits, threads);
        expect_back<std::uint8_t>(count, bits, threads);
      }
    }
  }
}

TEST(SmallIndices, TheEvenOneIsTheLowHalf) {
  Workers workers(1);
  const std::vector<std::int64_t> indices{1, 2, 15};
  std::vector<std::uint8_t> packed(2);
  pack_small(workers, 3, indices.data(), 4, packed.data());
  EXPECT_EQ(packed, (std::vector<std::uint8_t>{0x21, 0x0F}));
}

TEST(SmallIndices, SayWhichIsTooLarge) {
  Workers workers(2);
  for (const std::int64_t bad : {std::int64_t{16}, std::int64_t{-1}, std::int64_t{1} << 40}) {
    std::vector<std::int64_t> indices(9000, 3);
    indices[8000] = bad;
    std::vector<std::uint8_t> packed(9000);
    const auto message =
        message_of([&] { pack_small(workers, 9000, indices.data(), 4, packed.data()); });
    EXPECT_THAT(message, HasSubstr("element 8000 is " + std::to_string(bad) + "; in 4 bits"));
    EXPECT_THAT(message, HasSubstr("0 to 15"));
  }
  EXPECT_THAT(message_of([] { small_bytes(3, 5); }), HasSubstr("5 bits each; it must be 4 or 8"));
}

}  // namespace
}  // namespace ebb::test::small_indices_test
