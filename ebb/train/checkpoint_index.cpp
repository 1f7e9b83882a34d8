// SPDX-License-Identifier: Apache-2.0
#include "ebb/train/checkpoint_index.h"

#include <charconv>
#include <limits>
#include <span>

#include "ebb/core/checksum.h"
#include "ebb/core/error.h"
#include "ebb/core/json.h"

namespace ebb {
namespace {

constexpr std::int64_t kFormat = 1;
constexpr std::string_view kEnding = ".safetensors";

// Only a key of the outermost object stands behind two spaces.
constexpr std::string_view kChecksum = ",\n  \"crc32c\": ";

// The text of an object without its end, with the checksum and the end.
std::string sealed(std::string_view open) {
  return std::string(open) + std::string(kChecksum) +
         std::to_string(crc32c(std::as_bytes(std::span(open)))) + "\n}\n";
}

Json to_json(const CheckpointFile& file) {
  return {{"file", file.name}, {"bytes", file.bytes}, {"crc32c", file.checksum}};
}

std::uint64_t read_unsigned(const JsonObject& object, std::string_view key, std::uint64_t most) {
  const Json* const value = object.find(key);
  if (value == nullptr || !value->is_number_unsigned() || value->get<std::uint64_t>() > most) {
    fail(ErrorCode::invalid_argument, object.where(key), " must be a whole number from 0 to ",
         most);
  }
  return value->get<std::uint64_t>();
}

CheckpointFile read_file_entry(const JsonObject& index, std::string_view part) {
  const Json* const value = index.find(part);
  if (value == nullptr) fail(ErrorCode::invalid_argument, index.where(part), " is missing");
  const JsonObject object(*value, index.where(part), {"file", "bytes", "crc32c"});
  CheckpointFile file;
  file.name = object.text("file", "");
  // A name of any other form could lead out of the directory.
  if (generation_of(part, file.name) == 0) {
    fail(ErrorCode::invalid_argument, object.where("file"), " must be a name such as ",
         generation_file(part, 1));
  }
  file.bytes = static_cast<Bytes>(read_unsigned(
      object, "bytes", static_cast<std::uint64_t>(std::numeric_limits<Bytes>::max())));
  file.checksum = static_cast<std::uint32_t>(
      read_unsigned(object, "crc32c", std::numeric_limits<std::uint32_t>::max()));
  return file;
}

Json to_json(const DataFingerprint& data) {
  return {{"files", data.files}, {"bytes", data.bytes}, {"crc32c", data.checksum}};
}

DataFingerprint read_fingerprint(const JsonObject& index) {
  const Json* const value = index.find("data");
  if (value == nullptr) return {};
  constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  const JsonObject object(*value, index.where("data"), {"files", "bytes", "crc32c"});
  DataFingerprint data;
  data.files = static_cast<std::int64_t>(read_unsigned(object, "files", most));
  data.bytes = static_cast<Bytes>(read_unsigned(object, "bytes", most));
  data.checksum = static_cast<std::uint32_t>(
      read_unsigned(object, "crc32c", std::numeric_limits<std::uint32_t>::max()));
  return data;
}

// The object that a text holds, which has to be sealed.
Json parse_sealed(std::string_view text, std::string_view what) {
  const std::size_t end = text.rfind(kChecksum);
  const bool has_checksum = end != std::string_view::npos;
  if (has_checksum && text != sealed(text.substr(0, end))) {
    fail(ErrorCode::invalid_argument, what,
         ": it is not as ebb wrote it: its checksum is that of another text");
  }
  Json json = parse_json(text, what);
  if (json.is_object() && json.contains("format") && json["format"].is_number_unsigned() &&
      json["format"].get<std::int64_t>() > kFormat) {
    fail(ErrorCode::unavailable, what, ": the checkpoint has format ", json["format"].dump(),
         "; this version of ebb reads ", kFormat, ": use a later one");
  }
  if (!has_checksum) {
    fail(ErrorCode::invalid_argument, what,
         ": it ends without its checksum, crc32c: it was changed, or written by a version of ebb "
         "before there were checksums");
  }
  return json;
}

}  // namespace

std::string generation_file(std::string_view part, std::int64_t generation) {
  return std::string(part) + "-" + std::to_string(generation) + std::string(kEnding);
}

std::int64_t generation_of(std::string_view part, std::string_view name) {
  if (!name.starts_with(part)) return 0;
  name.remove_prefix(part.size());
  if (!name.starts_with('-') || !name.ends_with(kEnding)) return 0;
  name.remove_prefix(1);
  name.remove_suffix(kEnding.size());
  std::int64_t generation = 0;
  const char* const end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data(), end, generation);
  // Without leading zeros and far from the largest number, so that one more is always a new name.
  const bool good = error == std::errc{} && stop == end && generation > 0 &&
                    generation < std::numeric_limits<std::int64_t>::max() / 2;
  return good && std::to_string(generation) == name ? generation : 0;
}

std::string to_text(const CheckpointIndex& index) {
  const Json options = parse_json(index.options, "checkpoint: options");
  if (!options.is_object()) {
    fail(ErrorCode::invalid_argument, "checkpoint: the options must be a JSON object {...}");
  }
  Json json{{"format", kFormat},
            {"iteration", index.iteration},
            {"seed", index.seed},
            {"options", options}};
  if (index.data.files > 0) json["data"] = to_json(index.data);
  json[kModel] = to_json(index.model);
  json[kOptimiser] = to_json(index.optimiser);
  const std::string text = json.dump(2);
  return sealed(std::string_view(text).substr(0, text.size() - std::string_view("\n}").size()));
}

CheckpointIndex parse_index(std::string_view text, std::string_view what) {
  const Json json = parse_sealed(text, what);
  const JsonObject object(
      json, std::string(what),
      {"format", "iteration", "seed", "options", "data", kModel, kOptimiser, "crc32c"});
  CheckpointIndex index;
  if (object.integer("format", 0) != kFormat) {
    fail(ErrorCode::invalid_argument, object.where("format"), " must be ", kFormat);
  }
  index.iteration = static_cast<std::int64_t>(read_unsigned(
      object, "iteration", static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())));
  index.seed = read_unsigned(object, "seed", std::numeric_limits<std::uint64_t>::max());
  const Json* const options = object.find("options");
  if (options == nullptr || !options->is_object()) {
    fail(ErrorCode::invalid_argument, object.where("options"), " must be an object {...}");
  }
  index.options = options->dump();
  index.data = read_fingerprint(object);
  index.model = read_file_entry(object, kModel);
  index.optimiser = read_file_entry(object, kOptimiser);
  if (generation_of(kModel, index.model.name) != generation_of(kOptimiser, index.optimiser.name)) {
    fail(ErrorCode::invalid_argument, what, ": ", index.model.name, " and ", index.optimiser.name,
         " are of different generations");
  }
  return index;
}

}  // namespace ebb
