// SPDX-License-Identifier: Apache-2.0
#include "ebb/data/read_wav.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/made_files.h"

namespace ebb::test::read_wav_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Recording read(const std::string& bytes) { return read_wav(bytes_of(bytes), "f.wav"); }
std::string refusal(const std::string& bytes) {
  return message_of([&] { read(bytes); });
}
const std::string kSamples = wav_chunk("data", numbers<std::int16_t>({0, 1, -1, 32767, -32768}));

TEST(ReadWav, SamplesAndRate) {
  const Recording recording = read(wav({0, 1, -1, 32767, -32768}, 44100));
  EXPECT_EQ(recording.rate, 44100);
  EXPECT_THAT(recording.samples, ElementsAre(0, 1, -1, 32767, -32768));
  EXPECT_TRUE(read(wav({})).samples.empty());
}

TEST(ReadWav, OtherChunksAreSkipped) {
  const std::string odd = wav_chunk("LIST", "odd");
  const std::string bytes = wav_file(odd + wav_format(1, 1, 16) + odd + kSamples + odd);
  EXPECT_EQ(read(bytes).samples.size(), 5U);
}

TEST(ReadWav, OtherFormats) {
  const std::string only = "only PCM (format 1) with one channel of 16 bits is read";
  EXPECT_EQ(refusal(wav_file(wav_format(3, 1, 32) + kSamples)),
            "f.wav: format 3 with 1 channels of 32 bits; " + only);
  EXPECT_THAT(refusal(wav_file(wav_format(1, 2, 16) + kSamples)), HasSubstr("2 channels"));
  EXPECT_THAT(refusal(wav_file(wav_format(1, 1, 8) + kSamples)), HasSubstr("8 bits"));
  EXPECT_THAT(refusal(wav_file(wav_format(0xfffe, 1, 16) + kSamples)), HasSubstr("format 65534"));
  EXPECT_THAT(refusal(wav({0}, 0)), HasSubstr("0 samples per second"));
}

TEST(ReadWav, Damage) {
  EXPECT_THAT(refusal("RIFX" + wav({0}).substr(4)), HasSubstr("not a RIFF file"));
  EXPECT_THAT(refusal("RIFF1234AVI "), HasSubstr("not a RIFF file"));
  EXPECT_THAT(refusal(wav_file(kSamples + wav_format(1, 1, 16))), HasSubstr("before their format"));
  EXPECT_THAT(refusal(wav_file(wav_format(1, 1, 16))), HasSubstr("no samples"));
  EXPECT_THAT(refusal(wav_file(wav_format(1, 1, 16) + wav_chunk("data", "abc"))),
              HasSubstr("in the middle"));
  EXPECT_THAT(refusal(wav_file(wav_format(1, 1, 16) + "data" + little(0xffffffff, 4) + "ab")),
              HasSubstr("4294967295 bytes are needed"));
}

TEST(ReadWav, EveryBeginningIsRefused) {
  const std::string bytes = wav({1, 2, 3});
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_NE(refusal(bytes.substr(0, size)), "no error") << size;
  }
}

}  // namespace
}  // namespace ebb::test::read_wav_test
