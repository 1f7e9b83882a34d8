// SPDX-License-Identifier: Apache-2.0
// Codecs allocate nothing while encoding and decoding.
#include <gtest/gtest.h>

#include "ebb/codec/fields.h"
#include "tests/codec/fields_of_elements.h"
#include "tests/counted_new.h"

namespace ebb::test::allocation_test {
namespace {

TEST(Allocation, NoneByCodecs) {
  for (const CodecRow& row : codecs()) {
    const auto codec = make_codec(row.name, Element::f32);
    const Field field = bytes_of(spikes<float>(5003, 0.1, 1));
    Field to = encoded(*codec, field);
    Field back(field.size());
    to.resize(static_cast<std::size_t>(codec->encoded_bytes(static_cast<Bytes>(field.size()))));
    const long before = allocations;
    const Bytes written = codec->encode(field, to);
    codec->decode(std::span(to).first(static_cast<std::size_t>(written)), back);
    EXPECT_EQ(allocations, before) << row.name;
  }
}

TEST(Allocation, NoneByFieldCodecs) {
  const FieldCodec codec("a=bf16,c=bits",
                         {{.name = "a", .offset = 8, .bytes = 400},
                          {.name = "b", .offset = 408, .bytes = 4},
                          {.name = "c", .offset = 412, .bytes = 88}},
                         512);
  const Field item(512);
  Field to(static_cast<std::size_t>(codec.encoded_bytes()));
  Field back(512);
  const long before = allocations;
  codec.encode(item, to);
  codec.decode(to, back);
  EXPECT_EQ(allocations, before);
  EXPECT_EQ(back, item);
}

}  // namespace
}  // namespace ebb::test::allocation_test
