// SPDX-License-Identifier: Apache-2.0
// Strict reading of JSON text for the rooms that have a text form. Private, and the only header
// that includes nlohmann/json.hpp; which keys there are and what they mean is left to the callers.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "ebb/core/bytes.h"

namespace ebb {

// Keeps keys in the order they were written.
using Json = nlohmann::ordered_json;

// Throws Error(invalid_argument) that opens with `what` and names line and byte for text that is
// not JSON, for a key that is given twice in one object and for nesting deeper than 16.
Json parse_json(std::string_view text, std::string_view what);

// One object of a parsed text, read key by key. `value` must outlive it. Every message opens with
// `path`, which says where in the text the object is: "chain: steps[3]".
class JsonObject {
 public:
  // Throws Error(invalid_argument) unless `value` is an object whose keys are all in `allowed`.
  JsonObject(const Json& value, std::string path, std::initializer_list<std::string_view> allowed);

  bool has(std::string_view key) const { return find(key) != nullptr; }
  // The value of `key`, or `otherwise` when it is left out; a wrong type throws
  // Error(invalid_argument).
  double number(std::string_view key, double otherwise) const;
  std::int64_t integer(std::string_view key, std::int64_t otherwise) const;
  bool boolean(std::string_view key, bool otherwise) const;
  std::string text(std::string_view key, std::string_view otherwise) const;
  // A whole number of 0 or more, or text as parse_bytes reads it.
  Bytes bytes(std::string_view key, Bytes otherwise) const;
  // A number above 0, or text as parse_rate reads it.
  double rate(std::string_view key, double otherwise) const;
  // nullptr when `key` is left out.
  const Json* find(std::string_view key) const;
  // "chain: steps[3].tape"
  std::string where(std::string_view key) const;

 private:
  [[noreturn]] void refuse(std::string_view key, const Json& value, std::string_view allowed) const;

  const Json& value_;
  std::string path_;
};

// `text` as a JSON string with its quotes; bytes that are not UTF-8 become U+FFFD.
std::string json_string(std::string_view text);

}  // namespace ebb
