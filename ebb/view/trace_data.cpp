// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>

#include "ebb/core/error.h"
#include "ebb/core/units.h"
#include "ebb/view/film.h"
#include "ebb/view/run_data.h"

namespace ebb {
namespace {

struct Event {
  std::string name;
  std::int64_t lane = 0, from = 0, to = 0, step = 0;
  Bytes bytes = 0;
  bool tape = false;
  double start = 0, end = 0;
};

double number(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number() ? found->get<double>() : 0;
}

// Of steps and bytes: 0 for what cannot be one.
std::int64_t integer(const Json& json, const char* key) {
  constexpr std::uint64_t most = std::uint64_t{1} << 62;
  const auto found = json.find(key);
  const bool is =
      found != json.end() && found->is_number_unsigned() && found->get<std::uint64_t>() < most;
  return is ? found->get<std::int64_t>() : 0;
}

constexpr std::array kKinds{
    std::pair{"advance", Film::Work::advance}, std::pair{"record", Film::Work::record},
    std::pair{"reverse", Film::Work::reverse}, std::pair{"recover", Film::Work::recover},
    std::pair{"wait", Film::Work::wait}};

bool is_transfer(const std::string& name) { return name == "write" || name == "read"; }

bool is_ours(const std::string& name) {
  return is_transfer(name) ||
         std::ranges::any_of(kKinds, [&](const auto& kind) { return name == kind.first; });
}

Event event_of(const Json& json) {
  Event event;
  event.name = json.value("name", "");
  event.lane = integer(json, "tid");
  event.start = number(json, "ts") * 1e-6;
  event.end = event.start + std::max(0.0, number(json, "dur") * 1e-6);
  const auto args = json.find("args");
  if (args == json.end() || !args->is_object()) return event;
  event.from = integer(*args, "from");
  event.to = integer(*args, "to");
  event.step = integer(*args, "step");
  event.bytes = integer(*args, "bytes");
  event.tape = args->value("item", "") == "tape";
  return event;
}

struct Events {
  std::vector<Event> all;
  std::map<std::int64_t, std::string> names;  // of lanes
};

Events events_of(const Json& json) {
  Events found;
  for (const Json& one : json["traceEvents"]) {
    if (!one.is_object()) continue;
    const Json kind = one.contains("ph") ? one["ph"] : Json(nullptr);
    if (kind == "M" && one.contains("args") && one["args"].is_object()) {
      found.names[integer(one, "tid")] = one["args"].value("name", "");
    } else if (kind == "X") {
      Event event = event_of(one);
      if (is_ours(event.name) && event.from <= event.to) found.all.push_back(std::move(event));
    }
  }
  return found;
}

}  // namespace

bool is_trace(const Json& json) {
  return json.is_object() && json.contains("traceEvents") && json["traceEvents"].is_array();
}

Json trace_data(const Json& json, std::string_view name) {
  Events events = events_of(json);
  if (events.all.empty()) {
    fail(ErrorCode::invalid_argument, name,
         ": the trace has no event of ebb; pages show what Run::trace_json() writes");
  }
  double first = events.all.front().start, last = 0;
  std::int64_t steps = 0;
  for (const Event& event : events.all) {
    first = std::min(first, event.start);
    last = std::max(last, event.end);
    steps = std::max({steps, event.to, event.step + 1});
  }
  FilmShape shape{.seconds = last - first,
                  .steps = steps,
                  .events = static_cast<std::int64_t>(events.all.size()),
                  .lanes = {},
                  .places = {}};
  std::map<std::int64_t, std::size_t> lanes;
  for (const Event& event : events.all) {
    if (!is_transfer(event.name) || lanes.contains(event.lane)) continue;
    lanes[event.lane] = 0;
  }
  for (auto& [id, lane] : lanes) {
    lane = shape.lanes.size();
    const auto named = events.names.find(id);
    shape.lanes.push_back(named != events.names.end() ? named->second : std::to_string(id));
  }
  Film film(shape);
  for (const Event& event : events.all) {
    const double start = event.start - first, end = event.end - first;
    if (const auto lane = lanes.find(event.lane); is_transfer(event.name)) {
      film.moved(lane->second, event.name == "write", event.tape, event.step, event.bytes, start,
                 end);
      continue;
    }
    for (const auto& [word, kind] : kKinds) {
      if (event.name == word) film.worked(kind, start, end, event.from, event.to);
    }
  }
  Json data = {{"title", titled("What a run did", name)}};
  data["figures"] = Json::array({Json::array({"Time", format_seconds(last - first)}),
                                 Json::array({"Steps", std::to_string(steps)}),
                                 Json::array({"Events", std::to_string(events.all.size())})});
  const auto other = json.find("otherData");
  if (other != json.end() && other->is_object()) {
    const std::int64_t lost = integer(*other, "events_left_out");
    if (lost > 0)
      data["remarks"] = Json::array(
          {std::to_string(lost) + " later events did not fit in the trace and are not shown."});
  }
  data["film"] = film.json();
  return data;
}

}  // namespace ebb
