// SPDX-License-Identifier: Apache-2.0
#include "ebb/train/trained.h"

#include <charconv>
#include <system_error>
#include <utility>

#include "ebb/core/error.h"
#include "ebb/core/json.h"
#include "ebb/core/version.h"
#include "ebb/train/checkpoint.h"
#include "ebb/train/durable_file.h"

namespace ebb {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMostNoted = 1'000'000'000'000;

std::string word_of(bool flag) { return flag ? "true" : "false"; }

// Takes notes and refuses what is missing or cannot be.
class NoteReader {
 public:
  NoteReader(const TensorNotes& notes, std::string_view file) : notes_(notes), file_(file) {}

  const std::string& text(const char* key) const {
    const auto found = notes_.find(key);
    if (found == notes_.end()) {
      fail(ErrorCode::invalid_argument, file_, " does not say its ", key,
           ": it is not of ebb train, or of a version that did not yet; of a run's folder, ebb "
           "train "
           "--resume with one more iteration saves it anew");
    }
    return found->second;
  }
  std::int64_t whole(const char* key) const {
    const std::string& word = text(key);
    std::int64_t value = -1;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc{} || end != word.data() + word.size() || value < 0 ||
        value > kMostNoted) {
      refuse(key, "a whole number");
    }
    return value;
  }
  bool is(const char* key, const std::string& yes, const std::string& no) const {
    const std::string& word = text(key);
    if (word != yes && word != no) refuse(key, yes + " or " + no);
    return word == yes;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const Json& name : array("classes")) {
      if (!name.is_string()) refuse("classes", "a JSON array of names");
      all.push_back(name.get<std::string>());
    }
    return all;
  }
  std::string symbols() const {
    std::string all;
    for (const Json& byte : array("bytes")) {
      if (!byte.is_number_unsigned() || byte.get<std::uint64_t>() > 255) {
        refuse("bytes", "a JSON array of numbers from 0 to 255");
      }
      all += static_cast<char>(byte.get<std::uint8_t>());
    }
    return all;
  }

 private:
  Json array(const char* key) const {
    if (!notes_.contains(key)) return Json::array();
    Json json = parse_json(text(key), std::string(file_) + ": " + key);
    if (!json.is_array()) refuse(key, "a JSON array");
    return json;
  }
  [[noreturn]] void refuse(const char* key, const std::string& allowed) const {
    fail(ErrorCode::invalid_argument, file_, ": ", key, " is ", json_string(text(key)),
         "; it must be ", allowed);
  }

  const TensorNotes& notes_;
  std::string_view file_;
};

void take_notes(const TensorNotes& notes, TrainedModel& model) {
  const NoteReader read(notes, model.name);
  model.iteration = read.whole("iteration");
  model.shape.steps = read.whole("steps");
  model.shape.inputs = read.whole("inputs");
  model.shape.outputs = read.whole("outputs");
  model.shape.spikes = read.is("spikes", "true", "false");
  model.shape.every_step = read.is("every_step", "true", "false");
  model.shape.classes = read.is("kind", "classification", "regression");
  model.classes = read.names();
  model.symbols = read.symbols();
  for (const auto& [what, count] :
       {std::pair{"classes", model.classes.size()}, std::pair{"bytes", model.symbols.size()}}) {
    if (count == 0 || count == static_cast<std::size_t>(model.shape.outputs)) continue;
    fail(ErrorCode::invalid_argument, model.name, " has ", model.shape.outputs, " outputs and ",
         count, " ", what);
  }
}

}  // namespace

TensorNotes model_notes(const TrainOptions& options, const Task& task, std::int64_t iteration) {
  const TaskShape shape = task.shape();
  Json own = parse_json(to_json(options), "options");
  // Runs that differ in these alone leave the same bytes.
  for (auto option = own.begin(); option != own.end();) {
    option = is_free_option(option.key()) ? own.erase(option) : std::next(option);
  }
  TensorNotes notes{{"ebb_version", version()},
                    {"task", options.task},
                    {"cell", options.layer.cell},
                    {"dtype", options.dtype},
                    {"iteration", std::to_string(iteration)},
                    {"steps", std::to_string(shape.steps)},
                    {"inputs", std::to_string(shape.inputs)},
                    {"outputs", std::to_string(shape.outputs)},
                    {"spikes", word_of(shape.spikes)},
                    {"every_step", word_of(shape.every_step)},
                    {"kind", shape.classes ? "classification" : "regression"},
                    {"options", own.dump()}};
  if (const std::vector<std::string> names = task.class_names(); !names.empty()) {
    notes["classes"] = Json(names).dump();
  }
  Json bytes = Json::array();
  for (const char symbol : task.symbols()) bytes.push_back(static_cast<std::uint8_t>(symbol));
  if (!bytes.empty()) notes["bytes"] = bytes.dump();
  return notes;
}

TrainedModel load_trained(const fs::path& run) {
  std::error_code ignored;
  TrainedModel model;
  TensorNotes notes;
  const bool is_folder = fs::is_directory(run, ignored);
  if (is_folder && file_exists(run / "train.json")) {
    Checkpoint checkpoint = load_model(run);
    model.name = run.string();
    model.options = options_from_json(checkpoint.options, (run / "train.json").string());
    model.tensors = std::move(checkpoint.model);
    model.held = std::move(checkpoint.held);
    notes = std::move(checkpoint.notes);
  } else {
    const fs::path path = is_folder ? run / "model.safetensors" : run;
    if (!file_exists(path)) {
      fail(ErrorCode::io, "there is no run '", run.string(),
           "'; name the folder that ebb train --out wrote, or its model.safetensors");
    }
    model.name = path.string();
    auto held = std::make_shared<const std::vector<std::byte>>(read_file(path));
    Safetensors file = read_safetensors(*held, model.name);
    model.tensors = std::move(file.tensors);
    model.held = std::move(held);
    notes = std::move(file.notes);
    model.options = options_from_json(NoteReader(notes, model.name).text("options"), model.name);
  }
  take_notes(notes, model);
  check_options(model.options);
  return model;
}

}  // namespace ebb
