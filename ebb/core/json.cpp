// SPDX-License-Identifier: Apache-2.0
#include "ebb/core/json.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "ebb/core/error.h"
#include "ebb/core/rate.h"

namespace ebb {
namespace {

constexpr std::size_t kDeepest = 16;
constexpr double kTwoTo63 = 9223372036854775808.0;

// Enough of a value to recognise it in a message.
std::string excerpt(const Json& value) {
  constexpr std::size_t most = 40;
  std::string text = value.is_structured()
                         ? std::string(value.is_array() ? "an array" : "an object")
                         : value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > most) text = text.substr(0, most) + "...";
  return text;
}

// The part of nlohmann's message that says what was wrong, without its own numbering of errors and
// places.
std::string reason(const std::string& message) {
  const std::size_t detail = message.find("syntax error");
  if (detail != std::string::npos) return message.substr(detail);
  const std::size_t end_of_tag = message.find("] ");
  return end_of_tag == std::string::npos ? message : message.substr(end_of_tag + 2);
}

[[noreturn]] void fail_at(std::string_view what, std::string_view text, std::size_t byte,
                          const std::string& why) {
  const std::size_t at = std::min(byte, text.size());
  const auto line =
      1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
  // Of one line the caller has said which it is, if that matters.
  const std::string where =
      text.find('\n') < text.size() ? "line " + std::to_string(line) + ", " : "";
  fail(ErrorCode::invalid_argument, what, ": not valid JSON at ", where, "byte ", byte, ": ", why,
       byte > text.size() ? "; it may be cut off" : "");
}

// Refuses what the parser itself would let through: keys given twice, and absurd depth.
class Strictness {
 public:
  explicit Strictness(std::string_view what) : what_(what) {}

  bool operator()(int depth, Json::parse_event_t event, const Json& parsed) {
    const auto level = static_cast<std::size_t>(depth);
    if (level > kDeepest) {
      fail(ErrorCode::invalid_argument, what_, ": the JSON text is nested deeper than ", kDeepest);
    }
    if (event == Json::parse_event_t::object_start) {
      keys_.resize(level + 1);
      keys_[level].clear();
    } else if (event == Json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!keys_[level - 1].insert(key).second) {
        fail(ErrorCode::invalid_argument, what_, ": the key ", json_string(key),
             " is given twice in one object");
      }
    }
    return true;
  }

 private:
  std::string_view what_;
  std::vector<std::set<std::string>> keys_;  // by depth of the object
};

}  // namespace

Json parse_json(std::string_view text, std::string_view what) {
  try {
    Strictness strictness(what);
    const Json::parser_callback_t callback = [&strictness](int depth, Json::parse_event_t event,
                                                           Json& parsed) {
      return strictness(depth, event, parsed);
    };
    return Json::parse(text.begin(), text.end(), callback);
  } catch (const Json::parse_error& error) {
    fail_at(what, text, error.byte, reason(error.what()));
  } catch (const Json::exception& error) {
    fail(ErrorCode::invalid_argument, what, ": not valid JSON: ", reason(error.what()));
  }
}

JsonObject::JsonObject(const Json& value, std::string path,
                       std::initializer_list<std::string_view> allowed)
    : value_(value), path_(std::move(path)) {
  if (!value.is_object()) {
    fail(ErrorCode::invalid_argument, path_, ": expected an object {...}, found ", excerpt(value));
  }
  for (const auto& entry : value.items()) {
    if (std::find(allowed.begin(), allowed.end(), entry.key()) != allowed.end()) continue;
    std::string list;
    for (const std::string_view key : allowed) list.append(list.empty() ? "" : ", ").append(key);
    fail(ErrorCode::invalid_argument, path_, ": unknown key ", json_string(entry.key()),
         "; allowed are ", list);
  }
}

const Json* JsonObject::find(std::string_view key) const {
  const auto found = value_.find(key);
  return found == value_.end() ? nullptr : &*found;
}

std::string JsonObject::where(std::string_view key) const {
  std::string text = path_;
  text += text.ends_with(']') ? "." : ": ";
  return text.append(key);
}

void JsonObject::refuse(std::string_view key, const Json& value, std::string_view allowed) const {
  fail(ErrorCode::invalid_argument, where(key), " is ", excerpt(value), "; it must be ", allowed);
}

double JsonObject::number(std::string_view key, double otherwise) const {
  const Json* const value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_number()) refuse(key, *value, "a number");
  return value->get<double>();
}

std::int64_t JsonObject::integer(std::string_view key, std::int64_t otherwise) const {
  const Json* const value = find(key);
  if (value == nullptr) return otherwise;
  constexpr auto largest = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (value->is_number_unsigned() && value->get<std::uint64_t>() <= largest)
    return value->get<std::int64_t>();
  if (value->is_number_integer() && !value->is_number_unsigned()) return value->get<std::int64_t>();
  if (value->is_number_float()) {
    const auto number = value->get<double>();
    if (number == std::floor(number) && std::abs(number) < kTwoTo63)
      return static_cast<std::int64_t>(number);
  }
  refuse(key, *value, "a whole number below 2^63");
}

bool JsonObject::boolean(std::string_view key, bool otherwise) const {
  const Json* const value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) refuse(key, *value, "true or false");
  return value->get<bool>();
}

std::string JsonObject::text(std::string_view key, std::string_view otherwise) const {
  const Json* const value = find(key);
  if (value == nullptr) return std::string(otherwise);
  if (!value->is_string()) refuse(key, *value, "text");
  return value->get<std::string>();
}

Bytes JsonObject::bytes(std::string_view key, Bytes otherwise) const {
  const Json* const value = find(key);
  if (value == nullptr) return otherwise;
  constexpr std::string_view allowed =
      "a whole number of bytes from 0 to 2^63-1, or text such as \"64KiB\" or \"unlimited\"";
  if (value->is_string()) {
    try {
      return parse_bytes(value->get_ref<const std::string&>());
    } catch (const Error&) {
      refuse(key, *value, allowed);
    }
  }
  if (!value->is_number()) refuse(key, *value, allowed);
  const std::int64_t count = integer(key, 0);
  if (count < 0) refuse(key, *value, allowed);
  return count;
}

double JsonObject::rate(std::string_view key, double otherwise) const {
  const Json* const value = find(key);
  if (value == nullptr) return otherwise;
  constexpr std::string_view allowed =
      "bytes a second above 0, or text such as \"2.5GB/s\" or \"unlimited\"";
  if (value->is_string()) {
    try {
      return parse_rate(value->get_ref<const std::string&>());
    } catch (const Error&) {
      refuse(key, *value, allowed);
    }
  }
  if (!value->is_number() || value->get<double>() <= 0) refuse(key, *value, allowed);
  return value->get<double>();
}

std::string json_string(std::string_view text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace ebb
