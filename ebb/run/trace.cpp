// SPDX-License-Identifier: Apache-2.0
#include "ebb/run/trace.h"

#include <array>

#include "ebb/core/json.h"

namespace ebb {
namespace {

constexpr std::array kNames{"advance", "record", "reverse", "recover", "wait", "write", "read"};
constexpr int kComputeLane = 0, kWaitLane = 1;

// Each tier has a row of its own for writes and one for reads.
int lane(const TraceEvent& event) {
  switch (event.kind) {
    case TraceEvent::Kind::wait:
      return kWaitLane;
    case TraceEvent::Kind::write:
      return 2 + 2 * event.tier;
    case TraceEvent::Kind::read:
      return 3 + 2 * event.tier;
    default:
      return kComputeLane;
  }
}

Json lane_name(int id, const std::string& name) {
  return {
      {"name", "thread_name"}, {"ph", "M"}, {"pid", 0}, {"tid", id}, {"args", {{"name", name}}}};
}

}  // namespace

std::string Trace::json(const std::vector<std::string>& tiers) const {
  Json events = Json::array();
  events.push_back(lane_name(kComputeLane, "compute"));
  events.push_back(lane_name(kWaitLane, "waits"));
  for (std::size_t k = 0; k < tiers.size(); ++k) {
    const int first = 2 + 2 * static_cast<int>(k);
    events.push_back(lane_name(first, tiers[k] + " writes"));
    events.push_back(lane_name(first + 1, tiers[k] + " reads"));
  }
  for (const TraceEvent& event : events_) {
    Json args = Json::object();
    if (event.kind != TraceEvent::Kind::wait) {
      args["from"] = event.from;
      args["to"] = event.to;
    }
    if (event.kind == TraceEvent::Kind::write || event.kind == TraceEvent::Kind::read) {
      args = {
          {"item", event.tape ? "tape" : "state"}, {"step", event.from}, {"bytes", event.bytes}};
    }
    events.push_back({{"name", kNames[static_cast<std::size_t>(event.kind)]},
                      {"ph", "X"},
                      {"pid", 0},
                      {"tid", lane(event)},
                      {"ts", event.start * 1e6},
                      {"dur", (event.end - event.start) * 1e6},
                      {"args", args}});
  }
  const Json whole = {{"traceEvents", events},
                      {"displayTimeUnit", "ms"},
                      {"otherData", {{"events_left_out", lost_}}}};
  return whole.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace ebb
