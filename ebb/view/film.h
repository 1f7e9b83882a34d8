// SPDX-License-Identifier: Apache-2.0
// What happened when, in few enough pieces to be drawn: each event by itself or, where there are too many, what happened in each of
// equal spans of time. Times are written in billionths of the whole.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ebb/core/bytes.h"
#include "ebb/core/json.h"

namespace ebb {

struct FilmPlace {
  std::string name;
  Bytes limit = kUnlimited;
};

struct FilmShape {
  double seconds = 0;              // all events end by then
  std::int64_t steps = 0;          // of the chain
  std::int64_t events = 0;         // about how many
  std::vector<std::string> lanes;  // of transfers
  std::vector<FilmPlace> places;   // whose memory is known
};

class Film {
 public:
  static constexpr std::int64_t kMostEvents = 8000;
  static constexpr std::int64_t kSpans = 1000;
  enum class Work : std::uint8_t { advance, record, reverse, recover, wait };

  explicit Film(FilmShape shape);

  // Steps [from,to), a reverse from the last one down. Of a wait both are 0.
  void worked(Work work, double start, double end, std::int64_t from, std::int64_t to);
  // out: away from where compute happens.
  void moved(std::size_t lane, bool out, bool tape, std::int64_t step, Bytes bytes, double start,
             double end);
  // From then on, in the order of time.
  void held(std::size_t place, Bytes bytes, double at);

  bool in_spans() const { return spans_; }
  Json json() const;

 private:
  static constexpr std::size_t kWorks = 5;
  struct Piece {
    double start, end;
    std::int64_t from, to;
    Work work;
  };
  struct Move {
    double start, end;
    std::int64_t step;
    Bytes bytes;
    bool out, tape;
  };
  struct Level {
    double at;
    Bytes bytes;
  };
  // What one kind of work, or one lane, did in one span.
  struct Span {
    double busy = 0;
    std::int64_t low = -1, high = -1, count = 0;
    Bytes bytes = 0;
  };
  using Spans = std::vector<Span>;

  std::int64_t ticks(double seconds) const;
  std::size_t span_of(double seconds) const;
  template <class Add>
  void spread(double start, double end, Add add);
  void raise(std::size_t place, double until);
  Json work_json() const;
  Json lane_json(std::size_t lane) const;
  Json place_json(std::size_t place) const;

  FilmShape shape_;
  bool spans_;
  std::vector<Piece> pieces_;
  std::vector<std::vector<Move>> moves_;
  std::vector<std::vector<Level>> levels_;  // in spans: the last one alone
  std::vector<Spans> work_spans_, lane_spans_;
  std::vector<std::vector<Bytes>> most_;
};

}  // namespace ebb
