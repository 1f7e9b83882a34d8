// SPDX-License-Identifier: Apache-2.0
#include "ebb/codec/fields.h"

#include <algorithm>
#include <map>

#include "ebb/core/error.h"

namespace ebb {
namespace {

constexpr Bytes kAlign = 8;

using Choices = std::map<std::string_view, std::string_view>;  // codec words by field

bool in_range(Bytes offset, Bytes bytes, Bytes end) {
  return offset >= 0 && bytes >= 0 && offset <= end && bytes <= end - offset;
}

// Adds the field's name to what its codec says.
template <class Call>
auto naming(std::string_view field, const Call& call) {
  try {
    return call();
  } catch (const Error& error) {
    fail(error.code(), "field '", field, "': ", error.what());
  }
}

void check(const FieldShape& field, Bytes item, Bytes keep_offset, Bytes keep_bytes) {
  const Bytes size = element_bytes(field.element);
  if (!in_range(field.offset, field.bytes, item)) {
    fail(ErrorCode::invalid_argument, "field '", field.name, "': ", field.bytes, " bytes at ",
         field.offset, " do not lie in an item of ", item, " bytes");
  }
  if (field.offset % size != 0 || field.bytes % size != 0) {
    fail(ErrorCode::invalid_argument, "field '", field.name, "': ", field.bytes, " bytes at ",
         field.offset, " are not aligned to its elements of ", size, " bytes");
  }
  const Bytes first = std::max(field.offset, keep_offset);
  const Bytes last = std::min(field.offset + field.bytes, keep_offset + keep_bytes);
  if (first < last && last - first != field.bytes) {
    fail(ErrorCode::invalid_argument, "field '", field.name, "': ", field.bytes, " bytes at ",
         field.offset, " are partly in the ", keep_bytes, " bytes at ", keep_offset,
         " that are to be kept");
  }
}

// `fields` are in the order of their offsets.
void check_apart(const std::vector<FieldShape>& fields) {
  const FieldShape* before = nullptr;
  for (const FieldShape& field : fields) {
    if (std::ranges::count(fields, field.name, &FieldShape::name) > 1) {
      fail(ErrorCode::invalid_argument, "there are several fields '", field.name, "'");
    }
    if (field.bytes == 0) continue;
    if (before != nullptr && before->offset + before->bytes > field.offset) {
      fail(ErrorCode::invalid_argument, "fields '", before->name, "' and '", field.name,
           "' overlap at byte ", field.offset);
    }
    before = &field;
  }
}

const CodecRow& fixed_row(std::string_view words) {
  const CodecRow& row = codec_row(words.substr(0, words.find(':')));
  if (row.fixed) return row;
  std::string names;
  for (const CodecRow& other : codecs()) {
    if (other.fixed) names += (names.empty() ? "" : ", ") + std::string(other.name);
  }
  fail(ErrorCode::invalid_argument, "codec ", row.name,
       " has no fixed size, as a field's codec must; those that have are ", names);
}

Choices choices_of(std::string_view words, const std::vector<FieldShape>& fields) {
  Choices choices;
  if (words.find('=') == std::string_view::npos) {
    const CodecRow& row = fixed_row(words);
    make_codec(words, Element::f32);  // so that wrong words are told even if no field takes it
    for (const FieldShape& field : fields) {
      if (field.element != Element::byte || row.bytes) choices[field.name] = words;
    }
    return choices;
  }
  for (std::size_t begin = 0; begin <= words.size();) {
    const std::string_view choice = words.substr(begin, words.find(',', begin) - begin);
    begin += choice.size() + 1;
    const std::size_t equals = choice.find('=');
    if (equals == std::string_view::npos) {
      fail(ErrorCode::invalid_argument, "'", choice, "' in '", words, "' is not field=codec");
    }
    const std::string_view name = choice.substr(0, equals);
    if (std::ranges::find(fields, name, &FieldShape::name) == fields.end()) {
      std::string names;
      for (const FieldShape& field : fields) names += (names.empty() ? "" : ", ") + field.name;
      fail(ErrorCode::invalid_argument, "there is no field '", name, "'; there are ",
           names.empty() ? "none" : names);
    }
    if (!choices.emplace(name, choice.substr(equals + 1)).second) {
      fail(ErrorCode::invalid_argument, "field '", name, "' has several codecs in '", words, "'");
    }
  }
  return choices;
}

}  // namespace

FieldCodec::FieldCodec(std::string_view words, std::vector<FieldShape> fields, Bytes item,
                       Bytes keep_offset, Bytes keep_bytes)
    : raw_(item) {
  if (item < 0 || !in_range(keep_offset, keep_bytes, item)) {
    fail(ErrorCode::invalid_argument, "the ", keep_bytes, " bytes at ", keep_offset,
         " that are to be kept do not lie in an item of ", item, " bytes");
  }
  std::ranges::sort(fields, {}, &FieldShape::offset);
  for (const FieldShape& field : fields) check(field, item, keep_offset, keep_bytes);
  check_apart(fields);
  const Choices choices = choices_of(words, fields);

  for (const FieldShape& field : fields) {
    const auto choice = choices.find(field.name);
    if (choice == choices.end()) continue;
    naming(field.name, [&] {
      const CodecRow& row = fixed_row(choice->second);
      auto codec = make_codec(choice->second, field.element);
      const bool kept =
          field.offset >= keep_offset && field.offset + field.bytes <= keep_offset + keep_bytes;
      if (kept || row.name == "raw" || field.bytes == 0) return;
      add_field(field, std::move(codec));
      exact_ = exact_ && row.exact;
    });
  }
  keep_until(raw_);
}

void FieldCodec::keep_until(Bytes end) {
  const Bytes begin = parts_.empty() ? 0 : parts_.back().raw_at + parts_.back().raw_bytes;
  if (begin == end) return;
  const Bytes at = encoded_ + ((begin - encoded_) % kAlign + kAlign) % kAlign;
  parts_.push_back({"", nullptr, begin, end - begin, at, end - begin});
  encoded_ = at + (end - begin);
}

void FieldCodec::add_field(const FieldShape& field, std::unique_ptr<Codec> codec) {
  const Bytes bytes = codec->encoded_bytes(field.bytes);
  keep_until(field.offset);
  const Bytes at = (encoded_ + kAlign - 1) / kAlign * kAlign;
  parts_.push_back({field.name, std::move(codec), field.offset, field.bytes, at, bytes});
  encoded_ = at + bytes;
}

void FieldCodec::encode(std::span<const std::byte> item, std::span<std::byte> to) const {
  if (static_cast<Bytes>(item.size()) != raw_ || static_cast<Bytes>(to.size()) < encoded_) {
    fail(ErrorCode::invalid_argument, "an item of ", item.size(), " bytes into ", to.size(),
         "; the fields are of one of ", raw_, ", which takes ", encoded_);
  }
  Bytes done = 0;
  for (const Part& part : parts_) {
    const auto from = item.subspan(static_cast<std::size_t>(part.raw_at),
                                   static_cast<std::size_t>(part.raw_bytes));
    const auto out =
        to.subspan(static_cast<std::size_t>(part.at), static_cast<std::size_t>(part.bytes));
    // Without this the same item would not always give the same bytes.
    std::fill(to.begin() + done, to.begin() + part.at, std::byte{0});
    done = part.at + part.bytes;
    if (part.codec == nullptr) {
      std::ranges::copy(from, out.begin());
    } else {
      naming(part.name, [&] { part.codec->encode(from, out); });
    }
  }
}

void FieldCodec::decode(std::span<const std::byte> from, std::span<std::byte> item) const {
  if (static_cast<Bytes>(item.size()) != raw_) {
    fail(ErrorCode::invalid_argument, "an item of ", item.size(),
         " bytes; the fields are of one of ", raw_);
  }
  if (static_cast<Bytes>(from.size()) != encoded_) {
    fail(ErrorCode::io, "the encoded item has ", from.size(), " bytes instead of ", encoded_);
  }
  for (const Part& part : parts_) {
    const auto in =
        from.subspan(static_cast<std::size_t>(part.at), static_cast<std::size_t>(part.bytes));
    const auto to = item.subspan(static_cast<std::size_t>(part.raw_at),
                                 static_cast<std::size_t>(part.raw_bytes));
    if (part.codec == nullptr) {
      std::ranges::copy(in, to.begin());
    } else {
      naming(part.name, [&] { part.codec->decode(in, to); });
    }
  }
}

Bytes FieldCodec::kept_at(Bytes offset) const {
  for (const Part& part : parts_) {
    if (offset < part.raw_at || offset >= part.raw_at + part.raw_bytes) continue;
    if (part.codec == nullptr) return part.at + (offset - part.raw_at);
    fail(ErrorCode::invalid_argument, "byte ", offset, " is in field '", part.name,
         "', which is encoded and not kept as it is");
  }
  fail(ErrorCode::invalid_argument, "there is no byte ", offset, " in an item of ", raw_, " bytes");
}

}  // namespace ebb
