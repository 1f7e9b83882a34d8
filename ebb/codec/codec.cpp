// SPDX-License-Identifier: Apache-2.0
#include "ebb/codec/codec.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "ebb/codec/element_codec.h"
#include "ebb/codec/rows.h"

namespace ebb {
namespace {

class Raw : public ElementCodec<std::byte> {
 public:
  Raw() : ElementCodec("raw") {}

 private:
  std::size_t encoded_size(std::size_t count) const override { return count; }
  void encode_elements(std::span<const std::byte> in, std::span<std::byte> to) const override {
    std::ranges::copy(in, to.begin());
  }
  void decode_elements(std::span<const std::byte> from, std::span<std::byte> out) const override {
    std::ranges::copy(from, out.begin());
  }
};

constexpr bool kExact = true, kLossy = false;
constexpr bool kFixed = true, kVaries = false;
constexpr bool kBytes = true, kNumbers = false;

constexpr std::array kRows{
    CodecRow{"raw", "as it is", kExact, kFixed, kBytes, "", make_raw},
    CodecRow{"bf16", "two bytes, the range of float, 8 bits of precision", kLossy, kFixed, kNumbers,
             "", make_bf16},
    CodecRow{"fp16", "two bytes, up to 65504, 11 bits of precision", kLossy, kFixed, kNumbers, "",
             make_fp16},
    CodecRow{"int8", "one byte and a scale for every 64", kLossy, kFixed, kNumbers, "", make_int8},
    CodecRow{"bits", "one bit for each 0 or 1 (spikes)", kExact, kFixed, kNumbers, "", make_bits},
    CodecRow{"events", "indices and values of what is not 0; as it is beyond the cap", kExact,
             kVaries, kNumbers, "cap in percent of the elements", make_events},
    CodecRow{"pool", "means of blocks of neighbours", kLossy, kFixed, kNumbers,
             "block, or blockxinner for rows of `inner` elements", make_pool},
#ifdef EBB_HAS_ZSTD
    CodecRow{"zstd", "lossless, small", kExact, kVaries, kBytes, "level 1 to 19", make_zstd},
#endif
#ifdef EBB_HAS_LZ4
    CodecRow{"lz4", "lossless, fast", kExact, kVaries, kBytes, "", make_lz4},
#endif
};

}  // namespace

std::unique_ptr<Codec> make_raw(Element, std::string_view) { return std::make_unique<Raw>(); }

std::size_t element_count(std::string_view name, Bytes raw, Bytes element) {
  if (raw < 0 || raw % element != 0) {
    fail(ErrorCode::invalid_argument, "codec ", name, ": a field of ", raw,
         " bytes is no whole number of elements of ", element, element == 1 ? " byte" : " bytes");
  }
  return static_cast<std::size_t>(raw / element);
}

std::int64_t codec_number(std::string_view name, std::string_view parameter, std::int64_t least,
                          std::int64_t most) {
  std::int64_t number = 0;
  const char* const end = parameter.data() + parameter.size();
  const auto [rest, error] = std::from_chars(parameter.data(), end, number);
  if (error != std::errc{} || rest != end || number < least || number > most) {
    fail(ErrorCode::invalid_argument, "codec ", name, ": '", parameter,
         "' is not a whole number from ", least, " to ", most);
  }
  return number;
}

std::span<const CodecRow> codecs() { return kRows; }

const CodecRow& codec_row(std::string_view name) {
  const auto row = std::ranges::find(kRows, name, &CodecRow::name);
  if (row != kRows.end()) return *row;
  if (name == "zstd" || name == "lz4") {
    fail(ErrorCode::unavailable, "codec ", name, " is not in this build; install its library (lib",
         name, "-dev) and build again");
  }
  std::string names;
  for (const CodecRow& other : kRows)
    names += (names.empty() ? "" : ", ") + std::string(other.name);
  fail(ErrorCode::invalid_argument, "there is no codec '", name, "'; there are ", names);
}

std::unique_ptr<Codec> make_codec(std::string_view words, Element element) {
  const std::size_t colon = words.find(':');
  const CodecRow& row = codec_row(words.substr(0, colon));
  const std::string_view parameter =
      colon == std::string_view::npos ? std::string_view{} : words.substr(colon + 1);
  if (row.parameter.empty() && colon != std::string_view::npos) {
    fail(ErrorCode::invalid_argument, "codec ", row.name, " takes no parameter; '", parameter,
         "' was given");
  }
  if (parameter.empty() && colon != std::string_view::npos) {
    fail(ErrorCode::invalid_argument, "codec ", row.name, ": '", words,
         "' lacks its parameter: ", row.parameter);
  }
  return row.make(element, parameter);
}

}  // namespace ebb
