// SPDX-License-Identifier: Apache-2.0
#include "ebb/train/safetensors_header.h"

#include <algorithm>
#include <array>
#include <limits>
#include <unordered_set>
#include <utility>

#include "ebb/core/error.h"
#include "ebb/core/json.h"

namespace ebb {
namespace {

constexpr std::array kTypes{
    TensorTypeRow{TensorType::f32, "F32", 4}, TensorTypeRow{TensorType::f64, "F64", 8},
    TensorTypeRow{TensorType::i64, "I64", 8}, TensorTypeRow{TensorType::i32, "I32", 4},
    TensorTypeRow{TensorType::u8, "U8", 1},
};

// Event by event and not as a tree: a hostile header of millions of keys stays cheap.
class HeaderReader final : public Json::json_sax_t {
 public:
  explicit HeaderReader(std::string_view what) : what_(what) {}
  TensorHeader take() { return std::move(header_); }

  bool start_object(std::size_t) override {
    if (nesting_ == Nesting::outside) {
      nesting_ = Nesting::tensors;
    } else if (nesting_ == Nesting::tensors) {
      nesting_ = name_ == kNotesKey ? Nesting::notes : Nesting::tensor;
      tensor_ = {};
      has_type_ = has_shape_ = has_offsets_ = false;
    } else {
      refuse("an object");
    }
    return true;
  }

  bool key(std::string& key) override {
    if (nesting_ == Nesting::tensor) {
      begin_field(key);
    } else if (nesting_ == Nesting::notes) {
      note_ = key;
    } else {
      name_ = key;
      if (!names_.insert(key).second) {
        fail(ErrorCode::invalid_argument, what_, ": the header names ", shown_name(key), " twice");
      }
    }
    return true;
  }

  bool string(std::string& text) override {
    if (nesting_ == Nesting::notes) {
      if (!header_.notes.emplace(note_, text).second) {
        fail(ErrorCode::invalid_argument, what_, ": ", kNotesKey, " has ", shown_name(note_),
             " twice");
      }
    } else if (nesting_ == Nesting::tensor && field_ == TensorField::type) {
      tensor_.view.type = type_of(text);
    } else {
      refuse("text");
    }
    return true;
  }

  bool number_unsigned(std::uint64_t number) override {
    constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if ((nesting_ != Nesting::shape && nesting_ != Nesting::offsets) || number > most) {
      refuse(std::to_string(number));
    }
    const auto value = static_cast<std::int64_t>(number);
    if (nesting_ == Nesting::shape) {
      tensor_.view.shape.push_back(value);
    } else {
      if (offsets_ > 1) refuse("a third offset");
      (offsets_ == 0 ? tensor_.begin : tensor_.end) = value;
      ++offsets_;
    }
    return true;
  }

  bool start_array(std::size_t) override {
    if (nesting_ != Nesting::tensor || field_ == TensorField::type) refuse("an array");
    nesting_ = field_ == TensorField::shape ? Nesting::shape : Nesting::offsets;
    offsets_ = 0;
    return true;
  }

  bool end_array() override {
    if (nesting_ == Nesting::offsets && offsets_ != 2) refuse("fewer than two offsets");
    nesting_ = Nesting::tensor;
    return true;
  }

  bool end_object() override {
    if (nesting_ == Nesting::tensor) {
      if (!has_type_ || !has_shape_ || !has_offsets_) {
        fail(ErrorCode::invalid_argument, what_, ": tensor ", shown_name(name_),
             " lacks dtype, shape or data_offsets");
      }
      tensor_.view.name = name_;
      header_.tensors.push_back(std::move(tensor_));
    }
    nesting_ = nesting_ == Nesting::tensors ? Nesting::outside : Nesting::tensors;
    return true;
  }

  bool null() override { refuse("null"); }
  bool boolean(bool) override { refuse("true or false"); }
  bool number_integer(std::int64_t number) override { refuse(std::to_string(number)); }
  bool number_float(double, const std::string& text) override { refuse(text); }
  bool binary(Json::binary_t&) override { refuse("binary data"); }
  bool parse_error(std::size_t byte, const std::string&, const Json::exception&) override {
    fail(ErrorCode::invalid_argument, what_, ": the header is not valid JSON at byte ", byte);
  }

 private:
  enum class Nesting { outside, tensors, tensor, shape, offsets, notes };
  enum class TensorField { type, shape, offsets };

  void begin_field(std::string_view key) {
    const bool type = key == "dtype", shape = key == "shape", offsets = key == "data_offsets";
    bool& has = type ? has_type_ : shape ? has_shape_ : has_offsets_;
    if ((!type && !shape && !offsets) || has) {
      fail(ErrorCode::invalid_argument, what_, ": tensor ", shown_name(name_), " has the key ",
           shown_name(key), "; it must have dtype, shape and data_offsets, once each");
    }
    has = true;
    field_ = type ? TensorField::type : shape ? TensorField::shape : TensorField::offsets;
  }

  TensorType type_of(std::string_view word) const {
    for (const TensorTypeRow& row : kTypes) {
      if (row.word == word) return row.type;
    }
    std::string words;
    for (const TensorTypeRow& row : kTypes) {
      words.append(words.empty() ? "" : ", ").append(row.word);
    }
    fail(ErrorCode::invalid_argument, what_, ": tensor ", shown_name(name_), " has the type ",
         shown_name(word), "; those that can be read are ", words);
  }

  [[noreturn]] void refuse(std::string_view found) const {
    fail(ErrorCode::invalid_argument, what_, ": the header has ", found,
         nesting_ == Nesting::outside ? std::string(" instead of an object")
                                      : " where it does not belong, at " + shown_name(name_));
  }

  std::string_view what_;
  TensorHeader header_;
  std::unordered_set<std::string> names_;
  Nesting nesting_ = Nesting::outside;
  TensorField field_ = TensorField::type;
  std::string name_, note_;
  HeaderTensor tensor_;
  bool has_type_ = false, has_shape_ = false, has_offsets_ = false;
  int offsets_ = 0;
};

}  // namespace

const TensorTypeRow& tensor_type_row(TensorType type) {
  return *std::find_if(kTypes.begin(), kTypes.end(),
                       [type](const TensorTypeRow& row) { return row.type == type; });
}

std::optional<Bytes> tensor_bytes(TensorType type, std::span<const std::int64_t> shape) {
  Bytes bytes = tensor_type_row(type).bytes;
  for (const std::int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(bytes, extent, &bytes)) return std::nullopt;
  }
  return bytes;
}

TensorHeader parse_tensor_header(std::string_view text, std::string_view what) {
  // The parser would take a NUL for the end of the text.
  if (text.empty() || text.front() != '{' || text.find('\0') != std::string_view::npos) {
    fail(ErrorCode::invalid_argument, what, ": the header is not a JSON object");
  }
  HeaderReader reader(what);
  Json::sax_parse(text.begin(), text.end(), &reader);
  return reader.take();
}

std::string shown_name(std::string_view name) {
  constexpr std::size_t most = 60;
  return json_string(name.substr(0, most)) + (name.size() > most ? "..." : "");
}

}  // namespace ebb
