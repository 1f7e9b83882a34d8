// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>

#include "ebb/core/error.h"
#include "tests/codec/fields_of_elements.h"

namespace ebb::test::events_test {
namespace {

template <class T>
std::vector<T> with_events(std::size_t count, std::size_t events, std::uint64_t seed) {
  std::vector<T> values(count, T{0});
  const std::vector<T> odd = odd_ones<T>(events, seed);
  for (std::size_t i = 0; i < events; ++i) values[i] = odd[i] == 0 ? -T{0} : odd[i];
  std::ranges::shuffle(values, std::mt19937_64(seed));
  return values;
}

// A count, and an index and a value for each event; or a count and the field.
template <class T>
std::size_t expected_bytes(std::size_t count, std::size_t events, std::size_t percent) {
  const std::size_t listed = 4 + events * (4 + sizeof(T));
  const bool beyond = events * 100 > count * percent || listed > 4 + count * sizeof(T);
  return beyond ? 4 + count * sizeof(T) : listed;
}

template <class T>
void expect_densities(std::size_t count) {
  for (const std::size_t percent : {0, 1, 10, 50, 99, 100}) {
    const auto codec = make_codec("events:" + std::to_string(percent), kElement<T>);
    for (std::size_t density = 0; density <= 100; ++density) {
      const std::size_t events = count * density / 100;
      const Field field = bytes_of(with_events<T>(count, events, density));
      const Field to = encoded(*codec, field);
      ASSERT_EQ(to.size(), expected_bytes<T>(count, events, percent))
          << events << " of " << count << " under " << percent << " percent";
      ASSERT_EQ(decoded(*codec, to, field.size()), field);
    }
  }
}

TEST(Events, EveryDensityUnderEveryCap) {
  for (const std::size_t count : {1, 3, 100, 203}) {
    expect_densities<float>(count);
    expect_densities<double>(count);
  }
}

// Whether the list or the field fits decides, in exactly the bytes there are.
TEST(Events, TheRoomDecides) {
  const auto codec = make_codec("events", Element::f32);
  const Field field = bytes_of(with_events<float>(100, 40, 1));
  for (std::size_t room = 0; room <= 404; ++room) {
    Field to(room + 8, std::byte{0xEE});
    const Bytes written = codec->encode(field, std::span(to).first(room));
    ASSERT_EQ(written, room < 4 + 40 * 8 ? 0 : 4 + 40 * 8) << room;
    ASSERT_EQ(std::ranges::count(std::span(to).subspan(room), std::byte{0xEE}), 8) << room;
    if (written == 0) continue;
    to.resize(static_cast<std::size_t>(written));
    ASSERT_EQ(decoded(*codec, to, field.size()), field);
  }
}

TEST(Events, NegativeZeroIsOne) {
  const std::vector<double> values{0.0, -0.0, 0.0, 0.0, 0.0, 0.0};
  const Field to = encoded(*make_codec("events", Element::f64), bytes_of(values));
  EXPECT_EQ(to.size(), 16U);
}

// Indices have 32 bits. The memory is never touched: an empty list would need a look at all of it.
TEST(Events, FieldsBeyondTheIndicesAreKeptAsTheyAre) {
  const std::size_t bytes = (std::size_t{1} << 34) + 4096;
  void* const memory =
      mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) GTEST_SKIP() << "no address space for 16 GiB";
  const std::span<const std::byte> field(static_cast<const std::byte*>(memory), bytes);
  Field to(100);
  EXPECT_EQ(make_codec("events", Element::f32)->encode(field, to), 0);
  munmap(memory, bytes);
}

}  // namespace
}  // namespace ebb::test::events_test
