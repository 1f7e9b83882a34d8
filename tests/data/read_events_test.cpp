// SPDX-License-Identifier: Apache-2.0
#include "ebb/data/read_events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/made_files.h"

namespace ebb::test::read_events_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<CameraEvent> read(const std::string& bytes) {
  return read_events(bytes_of(bytes), "1.bs2", 34, 30);
}

TEST(ReadEvents, BitsAndBytes) {
  const std::string bytes =
      camera_event(18, 16, 1, 893) + camera_event(33, 29, 0, 0x7fffff) + camera_event(0, 0, 1, 0);
  EXPECT_EQ(bytes[2], '\x80');
  EXPECT_THAT(read(bytes), ElementsAre(CameraEvent{893, 18, 16, 1},
                                       CameraEvent{0x7fffff, 33, 29, 0}, CameraEvent{0, 0, 0, 1}));
  EXPECT_TRUE(read("").empty());
}

TEST(ReadEvents, Refusals) {
  EXPECT_THAT(message_of([] { read("123456"); }), HasSubstr("1.bs2: 6 bytes"));
  EXPECT_EQ(message_of([] { read(camera_event(0, 0, 0, 0) + camera_event(34, 0, 0, 0)); }),
            "1.bs2: the event before byte 10 is at (34,0); the picture has 34x30 places");
  EXPECT_THAT(message_of([] { read(camera_event(0, 30, 0, 0)); }), HasSubstr("(0,30)"));
}

}  // namespace
}  // namespace ebb::test::read_events_test
