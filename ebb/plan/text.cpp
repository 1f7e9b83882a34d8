// SPDX-License-Identifier: Apache-2.0
#include "ebb/plan/text.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>

#include "ebb/core/error.h"
#include "ebb/core/json.h"
#include "ebb/plan/presets.h"

namespace ebb {
namespace {

StepCost step_from(const Json& value, const std::string& path) {
  const JsonObject object(
      value, path,
      {"forward", "record", "backward", "state", "tape", "adjoint", "scratch", "live"});
  StepCost step;
  step.forward = object.number("forward", 1);
  step.record = object.number("record", step.forward);
  step.backward = object.number("backward", 2 * step.forward);
  step.state = object.bytes("state", 1);
  step.tape = object.bytes("tape", step.state);
  step.adjoint = object.bytes("adjoint", step.state);
  step.scratch = object.bytes("scratch", 0);
  step.live = object.bytes("live", 0);
  return step;
}

Json json_of(const StepCost& step) {
  Json json = {{"forward", step.forward}, {"record", step.record}, {"backward", step.backward},
               {"state", step.state},     {"tape", step.tape},     {"adjoint", step.adjoint},
               {"scratch", step.scratch}};
  if (step.live > step.state) json["live"] = step.live;
  return json;
}

Tier tier_from(const Json& value, const std::string& path) {
  const JsonObject object(
      value, path,
      {"name", "capacity", "write", "read", "latency", "write_latency", "read_latency", "duplex"});
  if (!object.has("name")) fail(ErrorCode::invalid_argument, path, ": the key \"name\" is missing");
  const bool both = object.has("latency");
  if (both && (object.has("write_latency") || object.has("read_latency"))) {
    fail(ErrorCode::invalid_argument, path,
         ": \"latency\" stands for both directions; leave out \"write_latency\" and "
         "\"read_latency\"");
  }
  Tier tier;
  tier.name = object.text("name", "");
  tier.capacity = object.bytes("capacity", tier.capacity);
  tier.write_rate = object.rate("write", tier.write_rate);
  tier.read_rate = object.rate("read", tier.read_rate);
  tier.write_latency = object.number(both ? "latency" : "write_latency", 0);
  tier.read_latency = object.number(both ? "latency" : "read_latency", 0);
  tier.duplex = object.boolean("duplex", true);
  return tier;
}

// What the reader takes for granted is left out.
Json json_of(const Tier& tier) {
  Json json = {{"name", tier.name}};
  if (tier.capacity != kUnlimited) json["capacity"] = tier.capacity;
  if (std::isfinite(tier.write_rate)) json["write"] = tier.write_rate;
  if (std::isfinite(tier.read_rate)) json["read"] = tier.read_rate;
  json["write_latency"] = tier.write_latency;
  json["read_latency"] = tier.read_latency;
  json["duplex"] = tier.duplex;
  return json;
}

std::string dumped(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Reads every element of the array at `path` with `element`, which is told where it is.
template <class Element>
auto array_of(const Json& value, const std::string& path, Element element) {
  if (!value.is_array()) fail(ErrorCode::invalid_argument, path, " must be an array [...]");
  std::vector<decltype(element(value, path))> items;
  items.reserve(value.size());
  for (const Json& item : value)
    items.push_back(element(item, path + "[" + std::to_string(items.size()) + "]"));
  return items;
}

const char* name_of(Item item) { return item == Item::state ? "state" : "tape"; }

std::string quoted_name(Place place, const Platform& platform) {
  if (place == Place::work) return "\"work\"";
  if (place == Place::fast) return "\"fast\"";
  return json_string(platform.tiers.at(static_cast<std::size_t>(place.tier())).name);
}

std::string range_json(const char* action, std::int64_t from, std::int64_t to) {
  return std::string("{\"action\":\"")
      .append(action)
      .append("\",\"from\":")
      .append(std::to_string(from))
      .append(",\"to\":")
      .append(std::to_string(to))
      .append("}");
}

std::string item_json(const char* action, Item item, std::int64_t step) {
  return std::string("{\"action\":\"")
      .append(action)
      .append("\",\"item\":\"")
      .append(name_of(item))
      .append("\",\"step\":")
      .append(std::to_string(step));
}

Chain chain_from(const Json& json) {
  const JsonObject object(json, "chain", {"steps", "repeat", "step", "call"});
  const Json* const steps = object.find("steps");
  const Json* const step = object.find("step");
  const bool repeated = object.has("repeat");
  if ((steps != nullptr) == (repeated || step != nullptr) || repeated != (step != nullptr)) {
    fail(ErrorCode::invalid_argument,
         "chain: give either \"steps\":[{...},...] or \"repeat\":N with \"step\":{...}");
  }
  const double call = object.number("call", 0);
  if (repeated)
    return Chain::uniform(object.integer("repeat", 0), step_from(*step, "chain: step"), call);
  return Chain::of(array_of(*steps, "chain: steps", step_from), call);
}

Json json_of(const Chain& chain) {
  Json json;
  if (chain.is_uniform()) {
    json["repeat"] = chain.steps();
    json["step"] = json_of(chain.at(0));
  } else {
    Json& steps = json["steps"] = Json::array();
    for (std::int64_t i = 0; i < chain.steps(); ++i) steps.push_back(json_of(chain.at(i)));
  }
  json["call"] = chain.call();
  return json;
}

Platform platform_from(const Json& json) {
  const JsonObject object(json, "platform", {"name", "note", "fast", "copy", "tiers"});
  Platform platform;
  platform.name = object.text("name", "");
  object.text("note", "");
  platform.fast = object.bytes("fast", kUnlimited);
  platform.copy_rate = object.rate("copy", platform.copy_rate);
  const Json* const tiers = object.find("tiers");
  if (tiers != nullptr) platform.tiers = array_of(*tiers, "platform: tiers", tier_from);
  check_platform(platform);
  return platform;
}

Json json_of(const Platform& platform) {
  Json json = {{"name", platform.name}};
  if (platform.fast != kUnlimited) json["fast"] = platform.fast;
  if (std::isfinite(platform.copy_rate)) json["copy"] = platform.copy_rate;
  Json& tiers = json["tiers"] = Json::array();
  for (const Tier& tier : platform.tiers) tiers.push_back(json_of(tier));
  return json;
}

PlanOptions options_from(const Json& json) {
  const JsonObject object(json, "options",
                          {"strategy", "budget", "slots", "working", "intervals", "period", "sync",
                           "tapes_stay", "length_unknown"});
  PlanOptions options;
  options.strategy = object.text("strategy", options.strategy);
  if (object.has("budget")) options.budget = object.bytes("budget", 0);
  if (object.has("slots")) options.slots = object.integer("slots", 0);
  if (object.has("working")) options.working = object.bytes("working", 0);
  if (const Json* const intervals = object.find("intervals")) {
    options.intervals =
        array_of(*intervals, "options: intervals", [](const Json& item, const std::string& path) {
          if (!item.is_number_integer())
            fail(ErrorCode::invalid_argument, path, " must be a whole number");
          return item.get<std::int64_t>();
        });
  }
  if (object.has("period")) options.period = object.integer("period", 0);
  options.sync = object.boolean("sync", false);
  options.tapes_stay = object.boolean("tapes_stay", false);
  options.length_unknown = object.boolean("length_unknown", false);
  return options;
}

Json json_of(const PlanOptions& options) {
  Json json = {{"strategy", options.strategy}};
  if (options.budget) json["budget"] = *options.budget;
  if (options.slots) json["slots"] = *options.slots;
  if (options.working) json["working"] = *options.working;
  if (!options.intervals.empty()) json["intervals"] = options.intervals;
  if (options.period) json["period"] = *options.period;
  for (const auto& [name, given] : {std::pair{"sync", options.sync},
                                    {"tapes_stay", options.tapes_stay},
                                    {"length_unknown", options.length_unknown}}) {
    if (given) json[name] = true;
  }
  return json;
}

Json json_of(const PlanQuestion& question) {
  return {{"chain", json_of(question.chain)},
          {"platform", json_of(question.platform)},
          {"options", json_of(question.options)}};
}

}  // namespace

Chain chain_from_json(std::string_view text) { return chain_from(parse_json(text, "chain")); }

std::string to_json(const Chain& chain) { return dumped(json_of(chain)); }

Platform platform_from_json(std::string_view text) {
  return platform_from(parse_json(text, "platform"));
}

std::string to_json(const Platform& platform) { return dumped(json_of(platform)); }

PlanQuestion question_from_json(std::string_view text) {
  const Json json = parse_json(text, "question");
  const JsonObject object(json, "question", {"chain", "platform", "options"});
  for (const char* key : {"chain", "platform", "options"}) {
    if (!object.has(key))
      fail(ErrorCode::invalid_argument, "question: the key \"", key, "\" is missing");
  }
  return {chain_from(*object.find("chain")), platform_from(*object.find("platform")),
          options_from(*object.find("options"))};
}

std::string to_json(const PlanQuestion& question) { return dumped(json_of(question)); }

std::string to_json(const Action& action, const Platform& platform) {
  return std::visit(
      [&platform](const auto& a) -> std::string {
        using Kind = std::decay_t<decltype(a)>;
        if constexpr (std::is_same_v<Kind, Advance>) {
          return range_json("advance", a.from, a.to);
        } else if constexpr (std::is_same_v<Kind, Record>) {
          return range_json("record", a.from, a.to);
        } else if constexpr (std::is_same_v<Kind, Reverse>) {
          return range_json("reverse", a.from, a.to);
        } else if constexpr (std::is_same_v<Kind, Copy>) {
          return item_json("copy", a.item, a.step) + ",\"from\":" + quoted_name(a.from, platform) +
                 ",\"to\":" + quoted_name(a.to, platform) + "}";
        } else {
          return item_json("drop", a.item, a.step) +
                 ",\"place\":" + quoted_name(a.place, platform) + "}";
        }
      },
      action);
}

std::string to_json(const Plan& plan, std::int64_t steps, double plan_seconds,
                    std::optional<Bytes> least, const PlanQuestion* question) {
  const Prediction& found = plan.prediction;
  const std::vector<Tier>& tiers = plan.machine.platform.tiers;
  Json peak = Json::object();
  Json moved = Json::object();
  for (std::size_t i = 0; i < found.peak.size() && i <= tiers.size(); ++i) {
    peak[i == 0 ? "fast" : tiers[i - 1].name] = found.peak[i];
  }
  for (std::size_t i = 0; i < found.moved.size() && i < tiers.size(); ++i) {
    moved[tiers[i].name] = {{"written", found.moved[i].written}, {"read", found.moved[i].read}};
  }
  Json parameters = Json::object();
  for (const auto& [name, value] : plan.parameters) {
    // Levels of one place share a name: outermost first.
    if (!parameters.contains(name)) {
      parameters[name] = value;
    } else if (parameters[name].is_array()) {
      parameters[name].push_back(value);
    } else {
      parameters[name] = Json::array({parameters[name], value});
    }
  }
  Json json;
  json["strategy"] = plan.strategy;
  json["steps"] = steps;
  json["forwards"] = found.forwards;
  json["advances"] = found.advances;
  json["records"] = found.records;
  json["seconds"] = found.seconds;
  json["bound_seconds"] = plan.bound.seconds;
  json["optimal"] = plan.optimal;
  json["peak"] = std::move(peak);
  json["moved"] = std::move(moved);
  json["stall_seconds"] = found.stall_seconds;
  json["actions"] = found.actions;
  json["plan_seconds"] = plan_seconds;
  json["least_budget"] = least ? Json(*least) : Json(nullptr);
  json["parameters"] = std::move(parameters);
  json["bound_relaxation"] = plan.bound.relaxation;
  if (question != nullptr) json["question"] = json_of(*question);
  return dumped(json);
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const EmbeddedFile& file : kPresetFiles) names.emplace_back(file.name);
  std::sort(names.begin(), names.end());
  return names;
}

Platform preset(std::string_view name) {
  for (const EmbeddedFile& file : kPresetFiles) {
    if (file.name == name) return platform_from_json(file.text);
  }
  std::string list;
  for (const std::string& known : preset_names())
    list.append(list.empty() ? "" : ", ").append(known);
  fail(ErrorCode::invalid_argument, "platform: there is no preset '", name, "'; there are ", list);
}

}  // namespace ebb
