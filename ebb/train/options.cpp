// SPDX-License-Identifier: Apache-2.0
#include "ebb/train/options.h"

#include <charconv>
#include <limits>

#include "ebb/core/budget_words.h"
#include "ebb/core/error.h"
#include "ebb/core/json.h"
#include "ebb/core/workers.h"
#include "ebb/train/training_device.h"

namespace ebb {
namespace {

constexpr std::string_view kTruncated = "truncated:";

template <class Options, class Visit>
void visit_cell_options(Options& o, const Visit& visit) {
  visit("input_density", o.input_density);
  visit("recurrent_density", o.recurrent_density);
  visit("weight_scale", o.weight_scale);
  visit("forget_bias", o.forget_bias);
  visit("recurrent", o.recurrent);
  visit("synaptic", o.synaptic);
  visit("hard_reset", o.hard_reset);
  visit("attached_reset", o.attached_reset);
  visit("normalised", o.normalised);
  visit("rest", o.rest);
  visit("surrogate", o.surrogate);
  visit("sharpness", o.sharpness);
  visit("gradient_threshold", o.gradient_threshold);
  visit("max_activity", o.max_activity);
  visit("threshold", o.threshold);
  visit("tau_mem", o.tau_mem);
  visit("tau_syn", o.tau_syn);
  visit("tau_adp", o.tau_adp);
  visit("beta", o.beta);
  visit("a", o.a);
  visit("b", o.b);
  visit("train_tau", o.train_tau);
  visit("train_threshold", o.train_threshold);
}

// Calls visit(key, value) for every option that is one number, word or flag.
template <class Options, class Visit>
void visit_options(Options& o, Visit visit) {
  visit("task", o.task);
  visit("data", o.data);
  visit("steps", o.steps);
  visit("batch", o.batch);
  visit("seed", o.seed);
  visit("cell", o.layer.cell);
  visit("hidden", o.layer.hidden);
  visit("layers", o.layers);
  visit("bias", o.layer.bias);
  visit("readout", o.readout);
  visit("pipelined", o.pipelined);
  visit("dropout", o.dropout);
  visit_cell_options(o.layer, visit);
  visit("dtype", o.dtype);
  visit("chunk", o.chunk);
  visit("device_chunk", o.device_chunk);
  visit("threads", o.threads);
  visit("budget", o.budget);
  visit("host_budget", o.host_budget);
  visit("strategy", o.strategy);
  visit("device", o.device);
  visit("iterations", o.iterations);
  visit("epochs", o.epochs);
  visit("lr", o.optimiser.lr);
  visit("momentum", o.optimiser.momentum);
  visit("beta1", o.optimiser.beta1);
  visit("beta2", o.optimiser.beta2);
  visit("epsilon", o.optimiser.epsilon);
  visit("weight_decay", o.optimiser.weight_decay);
  visit("clip", o.optimiser.clip);
  visit("evaluate", o.evaluate);
  visit("test_samples", o.test_samples);
  visit("save_seconds", o.save_seconds);
  visit("processes", o.processes);
}

class Reader {
 public:
  Reader(const Json& json, std::string_view what) : json_(json), what_(what) {}

  void operator()(const char* key, std::string& value) const {
    read(key, value, [](const Json& j) { return j.is_string(); }, "a word");
  }
  void operator()(const char* key, bool& value) const {
    read(key, value, [](const Json& j) { return j.is_boolean(); }, "true or false");
  }
  void operator()(const char* key, double& value) const {
    read(key, value, [](const Json& j) { return j.is_number(); }, "a number");
  }
  void operator()(const char* key, std::optional<double>& value) const {
    if (json_.contains(key)) (*this)(key, value.emplace(0));
  }
  template <class Integer>
    requires std::is_integral_v<Integer>
  void operator()(const char* key, Integer& value) const {
    read(key, value, [](const Json& j) { return j.is_number_integer(); }, "a whole number");
    const auto found = json_.find(key);
    if (found == json_.end() || Json(value).dump() == found->dump()) return;
    using Limits = std::numeric_limits<Integer>;
    fail(ErrorCode::invalid_argument, what_, ": ", key, " is ", found->dump(), "; it must be ",
         std::is_signed_v<Integer> ? Limits::min() : 0, " to ", Limits::max());
  }

 private:
  template <class Value, class Is>
  void read(const char* key, Value& value, Is is, const char* allowed) const {
    const auto found = json_.find(key);
    if (found == json_.end()) return;
    if (!is(*found)) {
      fail(ErrorCode::invalid_argument, what_, ": ", key, " is ", found->dump(), "; it must be ",
           allowed);
    }
    value = found->template get<Value>();
  }
  const Json& json_;
  std::string_view what_;
};

bool is_known(const std::string& key) {
  TrainOptions options;
  bool known = key == "optimiser" || key == "schedule";
  visit_options(options, [&](const char* name, const auto&) { known = known || key == name; });
  return known;
}

// Each in the words of the option that is wrong.
template <class Value>
void check_range(const char* name, Value value, Value least, Value most) {
  if (value >= least && value <= most) return;
  fail(ErrorCode::invalid_argument, name, " is ", value, "; it must be ", least, " to ", most);
}

// Which readouts there are, and that the cell is none; an unknown cell is found by the network.
void check_cells(const TrainOptions& o) {
  std::string readouts;
  bool is_known = false;
  for (const CellRow& row : cells()) {
    if (!row.is_readout) continue;
    readouts += (readouts.empty() ? "" : " or ") + row.name;
    is_known = is_known || row.name == o.readout;
    if (row.name == o.layer.cell) {
      fail(ErrorCode::invalid_argument, "cell is '", o.layer.cell,
           "', which is a readout; name it as readout");
    }
  }
  if (!is_known) {
    fail(ErrorCode::invalid_argument, "readout is '", o.readout, "'; it must be ", readouts);
  }
}

}  // namespace

void check_options(const TrainOptions& o) {
  constexpr std::int64_t many = 1'000'000'000;
  check_range<std::int64_t>("steps", o.steps, 0, many);
  check_range<std::int64_t>("batch", o.batch, 1, 65'535);
  check_range<std::int64_t>("layers", o.layers, 1, 1000);
  check_range<std::int64_t>("device_chunk", o.device_chunk, 0, many);
  check_range("threads", o.threads, 0, Workers::kMost);
  check_range<std::int64_t>("iterations", o.iterations, 0, many);
  check_range<std::int64_t>("epochs", o.epochs, 0, many);
  check_range<std::int64_t>("evaluate", o.evaluate, 0, many);
  check_range<std::int64_t>("test_samples", o.test_samples, 0, many);
  check_range("save_seconds", o.save_seconds, 0.0, 1e9);
  if (o.iterations > 0 && o.epochs > 0) {
    fail(ErrorCode::invalid_argument, "iterations and epochs are both given; give one of them");
  }
  check_cells(o);
  if (o.dtype != "float" && o.dtype != "double" && !is_device_number(o.dtype)) {
    fail(ErrorCode::invalid_argument, "dtype is '", o.dtype,
         "'; it must be float or double, or on a GPU tf32, bf16 or f16");
  }
  parse_training_device(o.device);
  check_optimiser(o.optimiser);
  truncation(o);
  budget_bytes(o, 1);
  host_budget_bytes(o, 1);
}

bool needs_one(std::string_view key) {
  return key == "steps" || key == "iterations" || key == "epochs";
}

TrainOptions options_from_json(std::string_view text, std::string_view what) {
  Json json = parse_json(text, what);
  if (!json.is_object()) fail(ErrorCode::invalid_argument, what, ": it must be a JSON object");
  if (const auto grain = json.find("grain"); grain != json.end()) {  // its earlier name
    if (!json.contains("chunk")) json["chunk"] = *grain;
    json.erase("grain");
  }
  for (const auto& [key, value] : json.items()) {
    if (!is_known(key)) fail(ErrorCode::invalid_argument, what, ": no option '", key, "'");
    if (needs_one(key) && value == 0) {
      fail(ErrorCode::invalid_argument, what, ": ", key,
           " is 0; it must be 1 or more, or be left out for the default");
    }
  }
  TrainOptions options;
  std::string optimiser(to_text(options.optimiser.kind)), schedule(to_text(options.schedule));
  const Reader read(json, what);
  read("optimiser", optimiser);
  read("schedule", schedule);
  options.optimiser = optimiser_defaults(parse_optimiser(optimiser));
  options.schedule = parse_schedule(schedule);
  visit_options(options, read);
  return options;
}

std::string to_json(const TrainOptions& options) {
  Json json;
  json["optimiser"] = to_text(options.optimiser.kind);
  json["schedule"] = to_text(options.schedule);
  visit_options(options, [&json](const char* key, const auto& value) {
    using Value = std::remove_cvref_t<decltype(value)>;
    if constexpr (std::is_same_v<Value, std::optional<double>>) {
      if (value) json[key] = *value;
    } else if constexpr (std::is_same_v<Value, std::int64_t>) {
      if (value != 0 || !needs_one(key)) json[key] = value;
    } else {
      json[key] = value;
    }
  });
  return json.dump(2);
}

bool is_free_option(std::string_view key) {
  for (const char* free : {"budget", "host_budget", "strategy", "device", "iterations", "epochs",
                           "evaluate", "test_samples", "save_seconds", "data", "threads"}) {
    if (key == free) return true;
  }
  return false;
}

std::int64_t truncation(const TrainOptions& options) {
  if (!options.strategy.starts_with(kTruncated)) return 0;
  const std::string_view word = std::string_view(options.strategy).substr(kTruncated.size());
  std::int64_t reach = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), reach);
  if (error != std::errc{} || end != word.data() + word.size() || reach < 1) {
    fail(ErrorCode::invalid_argument, "strategy is '", options.strategy,
         "'; truncated takes the time steps that gradients reach back, such as truncated:100");
  }
  return reach;
}

Bytes budget_bytes(const TrainOptions& options, Bytes plain) {
  return read_budget("budget", options.budget, plain);
}

Bytes host_budget_bytes(const TrainOptions& options, Bytes plain) {
  return read_budget("host_budget", options.host_budget, plain);
}

bool is_device_number(std::string_view dtype) {
  return dtype == "tf32" || dtype == "bf16" || dtype == "f16";
}

}  // namespace ebb
