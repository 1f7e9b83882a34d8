// SPDX-License-Identifier: Apache-2.0
#include "ebb/view/film.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace ebb {
namespace {

constexpr double kTicks = 1e9;
constexpr std::array kWorkNames{"advance", "record", "reverse", "recover", "wait"};

Json limit_json(Bytes limit) { return limit == kUnlimited ? Json(nullptr) : Json(limit); }

}  // namespace

Film::Film(FilmShape shape)
    : shape_(std::move(shape)),
      spans_(shape_.events > kMostEvents),
      moves_(shape_.lanes.size()),
      levels_(shape_.places.size()) {
  if (!spans_) return;
  constexpr auto spans = static_cast<std::size_t>(kSpans);
  work_spans_.assign(kWorks, Spans(spans));
  lane_spans_.assign(shape_.lanes.size(), Spans(spans));
  most_.assign(shape_.places.size(), std::vector<Bytes>(spans, 0));
}

std::int64_t Film::ticks(double seconds) const {
  return shape_.seconds > 0 ? std::llround(seconds / shape_.seconds * kTicks) : 0;
}

std::size_t Film::span_of(double seconds) const {
  if (shape_.seconds <= 0) return 0;
  const double share = std::clamp(seconds / shape_.seconds, 0.0, 1.0);
  return static_cast<std::size_t>(
      std::min(static_cast<double>(kSpans - 1), share * static_cast<double>(kSpans)));
}

// add(span, a, b) for the part [a,b) of the event, as shares of it, that lies in each span.
template <class Add>
void Film::spread(double start, double end, Add add) {
  const double length = end - start;
  const double width = shape_.seconds / static_cast<double>(kSpans);
  const std::size_t last = span_of(end);
  for (std::size_t i = span_of(start); i <= last; ++i) {
    const double a = std::max(start, static_cast<double>(i) * width);
    const double b = i == last ? end : std::min(end, static_cast<double>(i + 1) * width);
    if (b > a) {
      add(i, (a - start) / length, (b - start) / length);
    } else if (length <= 0) {
      add(i, 0.0, 1.0);
    }
  }
}

void Film::worked(Work work, double start, double end, std::int64_t from, std::int64_t to) {
  if (!spans_) {
    pieces_.push_back({start, end, from, to, work});
    return;
  }
  const auto steps = static_cast<double>(to - from);
  spread(start, end, [&](std::size_t i, double a, double b) {
    Span& span = work_spans_[static_cast<std::size_t>(work)][i];
    const bool down = work == Work::reverse;
    const double low = down ? 1 - b : a, high = down ? 1 - a : b;
    const std::int64_t first = from + static_cast<std::int64_t>(std::floor(low * steps));
    const std::int64_t last = from + static_cast<std::int64_t>(std::ceil(high * steps));
    span.low = span.count == 0 ? first : std::min(span.low, first);
    span.high = std::max(span.high, last);
    span.busy += (b - a) * (end - start);
    ++span.count;
  });
}

void Film::moved(std::size_t lane, bool out, bool tape, std::int64_t step, Bytes bytes,
                 double start, double end) {
  if (!spans_) {
    moves_[lane].push_back({start, end, step, bytes, out, tape});
    return;
  }
  spread(start, end, [&](std::size_t i, double a, double b) {
    Span& span = lane_spans_[lane][i];
    span.busy += (b - a) * (end - start);
    span.low = span.count == 0 ? step : std::min(span.low, step);
    span.high = std::max(span.high, step);
    ++span.count;
  });
}

// Until then the place holds what it held last.
void Film::raise(std::size_t place, double until) {
  std::vector<Level>& levels = levels_[place];
  if (levels.empty()) return;
  const std::size_t last = span_of(until);
  for (std::size_t i = span_of(levels.back().at); i <= last; ++i) {
    most_[place][i] = std::max(most_[place][i], levels.back().bytes);
  }
}

void Film::held(std::size_t place, Bytes bytes, double at) {
  std::vector<Level>& levels = levels_[place];
  if (spans_) {
    raise(place, at);
    levels.assign(1, {at, bytes});
    raise(place, at);
    return;
  }
  // At one time only the most and the last are drawn.
  const auto same = [&](std::size_t back) {
    return levels.size() >= back && levels[levels.size() - back].at == at;
  };
  if (same(1) && levels.back().bytes == bytes) return;
  if (same(2)) {
    Level& most = levels[levels.size() - 2];
    most.bytes = std::max(most.bytes, levels.back().bytes);
    levels.back().bytes = bytes;
  } else {
    levels.push_back({at, bytes});
  }
}

Json Film::work_json() const {
  Json kind = Json::array(), start = Json::array(), end = Json::array(), from = Json::array(),
       to = Json::array(), busy = Json::array();
  for (const Piece& piece : pieces_) {
    kind.push_back(static_cast<int>(piece.work));
    start.push_back(ticks(piece.start));
    end.push_back(ticks(piece.end));
    from.push_back(piece.from);
    to.push_back(piece.to);
  }
  const double width = shape_.seconds / static_cast<double>(kSpans);
  for (std::size_t work = 0; work < work_spans_.size(); ++work) {
    for (std::size_t i = 0; i < work_spans_[work].size(); ++i) {
      const Span& span = work_spans_[work][i];
      if (span.count == 0) continue;
      kind.push_back(work);
      start.push_back(ticks(static_cast<double>(i) * width));
      end.push_back(ticks(static_cast<double>(i + 1) * width));
      from.push_back(span.low);
      to.push_back(span.high);
      busy.push_back(std::llround(std::min(1.0, span.busy / width) * 1000));
    }
  }
  Json json = {{"kind", kind}, {"start", start}, {"end", end}, {"from", from}, {"to", to}};
  if (spans_) json["busy"] = busy;
  return json;
}

Json Film::lane_json(std::size_t lane) const {
  Json start = Json::array(), end = Json::array(), step = Json::array(), bytes = Json::array(),
       out = Json::array(), tape = Json::array(), busy = Json::array(), count = Json::array();
  for (const Move& move : moves_[lane]) {
    start.push_back(ticks(move.start));
    end.push_back(ticks(move.end));
    step.push_back(move.step);
    bytes.push_back(move.bytes);
    out.push_back(move.out ? 1 : 0);
    tape.push_back(move.tape ? 1 : 0);
  }
  Json json = {{"name", shape_.lanes[lane]}, {"start", start}, {"end", end}};
  if (!spans_) {
    json.update({{"step", step}, {"bytes", bytes}, {"out", out}, {"tape", tape}});
    return json;
  }
  const double width = shape_.seconds / static_cast<double>(kSpans);
  for (std::size_t i = 0; i < lane_spans_[lane].size(); ++i) {
    const Span& span = lane_spans_[lane][i];
    if (span.count == 0) continue;
    json["start"].push_back(ticks(static_cast<double>(i) * width));
    json["end"].push_back(ticks(static_cast<double>(i + 1) * width));
    busy.push_back(std::llround(std::min(1.0, span.busy / width) * 1000));
    count.push_back(span.count);
  }
  json.update({{"busy", busy}, {"count", count}});
  return json;
}

Json Film::place_json(std::size_t place) const {
  Json at = Json::array(), bytes = Json::array();
  if (!spans_) {
    for (const Level& level : levels_[place]) {
      at.push_back(ticks(level.at));
      bytes.push_back(level.bytes);
    }
  } else {
    const double width = shape_.seconds / static_cast<double>(kSpans);
    for (std::size_t i = 0; i < most_[place].size(); ++i) {
      at.push_back(ticks(static_cast<double>(i) * width));
      bytes.push_back(most_[place][i]);
    }
  }
  const FilmPlace& own = shape_.places[place];
  return {{"name", own.name}, {"limit", limit_json(own.limit)}, {"at", at}, {"bytes", bytes}};
}

Json Film::json() const {
  Json lanes = Json::array(), places = Json::array();
  for (std::size_t i = 0; i < shape_.lanes.size(); ++i) lanes.push_back(lane_json(i));
  for (std::size_t i = 0; i < shape_.places.size(); ++i) places.push_back(place_json(i));
  return {{"seconds", shape_.seconds}, {"steps", shape_.steps}, {"spans", spans_ ? kSpans : 0},
          {"kinds", kWorkNames},       {"work", work_json()},   {"lanes", lanes},
          {"memory", places}};
}

}  // namespace ebb
