// SPDX-License-Identifier: Apache-2.0
#include "ebb/codec/codec.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>

#include "ebb/codec/element_codec.h"
#include "ebb/codec/rows.h"

namespace ebb {
namespace {

class Raw : public Codec {
 public:
  Bytes encoded_bytes(Bytes raw) const override { return raw; }
  Bytes encode(std::span<const std::byte> from, std::span<std::byte> to) const override {
    std::memcpy(to.data(), from.data(), from.size());
    return static_cast<Bytes>(from.size());
  }
  void decode(std::span<const std::byte> from, std::span<std::byte> to) const override {
    std::memcpy(to.data(), from.data(), to.size());
  }
};

constexpr std::array kRows{
    CodecRow{"raw", "as it is", true, true, "", make_raw},
    CodecRow{"bf16", "two bytes, the range of float, 8 bits of precision", false, true, "",
             make_bf16},
    CodecRow{"fp16", "two bytes, up to 65504, 11 bits of precision", false, true, "", make_fp16},
    CodecRow{"int8", "one byte and a scale for every 64", false, true, "", make_int8},
    CodecRow{"bits", "one bit for each 0 or 1 (spikes)", true, true, "", make_bits},
    CodecRow{"events", "indices and values of what is not 0; as it is beyond the cap", true, false,
             "cap in percent of the elements", make_events},
    CodecRow{"pool", "means of blocks of neighbours", false, true,
             "block, or blockxinner for rows of `inner` elements", make_pool},
#ifdef EBB_HAS_ZSTD
    CodecRow{"zstd", "lossless, small", true, false, "level 1 to 19", make_zstd},
#endif
#ifdef EBB_HAS_LZ4
    CodecRow{"lz4", "lossless, fast", true, false, "", make_lz4},
#endif
};

}  // namespace

std::unique_ptr<Codec> make_raw(Element, std::string_view) { return std::make_unique<Raw>(); }

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
  return row.make(element, parameter);
}

}  // namespace ebb
