// SPDX-License-Identifier: Apache-2.0
#include "ebb/plan/stream.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ebb/core/error.h"
#include "ebb/plan/binomial.h"
#include "ebb/plan/replay.h"
#include "ebb/plan/stream_cursor.h"
#include "ebb/plan/uniform_mix.h"

namespace ebb {
namespace {

// Up to that many steps every pattern is a candidate and every promising one is replayed over the
// whole chain.
constexpr std::int64_t kSearchAll = 48;
// Longer chains: candidates judged at least, actions replayed beyond which no more are judged, and
// the intervals that a candidate is replayed over.
constexpr std::size_t kJudged = 6;
constexpr std::int64_t kReplayed = 3'000'000;
constexpr std::int64_t kReplayWhole = 2000;  // steps
constexpr std::int64_t kIntervals = 8;
// What the exact inner tables may cost.
constexpr double kInnerEntries = 1e6;

class Stream {
 public:
  Stream(const Problem& problem, bool tapes) : p_(problem), may_tape_(tapes) {}

  struct Candidate {
    StreamShape shape;
    double at_least = 0;
  };

  // The fastest shape that fits, by replay. Each tier is searched as if it were the only one, so
  // that one more never costs another its candidates.
  std::optional<Candidate> fastest() {
    std::optional<Candidate> best;
    double best_seconds = std::numeric_limits<double>::infinity();
    for (std::size_t tier = 0; tier < p_.tiers().size(); ++tier) {
      std::size_t judged = 0;
      replayed_ = 0;
      for (const Candidate& c : candidates(static_cast<int>(tier))) {
        if (c.at_least >= best_seconds) break;
        if (!all() && ++judged > kJudged && replayed_ > kReplayed) break;
        const double seconds = replayed_seconds(c.shape);
        if (seconds >= best_seconds) continue;
        best = c;
        best_seconds = seconds;
      }
    }
    return best;
  }

  std::unique_ptr<Cursor> cursor(const StreamShape& shape, std::optional<std::int64_t> steps) {
    return std::make_unique<StreamCursor>(shape, rooms(shape), steps);
  }

  // Bytes beside the working set that shapes need before anything is kept inside an interval.
  Bytes least() {
    Bytes least = kUnlimited;
    for (std::size_t tier = 0; tier < p_.tiers().size(); ++tier) {
      visit(static_cast<int>(tier), false, [&](const StreamShape& shape) {
        if (items(shape) <= capacity(shape)) least = std::min(least, held(shape));
      });
    }
    return least;
  }

  StreamCursor::Rooms rooms(const StreamShape& shape) {
    StreamCursor::Rooms rooms;
    const Inner interval = inner(shape.every - shape.tapes, interval_room(shape), shape.tapes == 0);
    const Inner tail = inner(shape.tail, tail_room(shape), true);
    rooms.interval = shared(interval);
    rooms.interval_room = interval.room;
    rooms.tail = shared(tail);
    rooms.tail_room = tail.room;
    return rooms;
  }

 private:
  bool all() const { return p_.steps() <= kSearchAll; }
  Bytes state() const { return p_.step.state; }
  // With an unknown length a given interval may be longer than the assumed chain.
  std::int64_t longest() const {
    if (!p_.options.length_unknown || p_.options.intervals.empty()) return p_.steps();
    return std::max(p_.steps(), p_.options.intervals.front());
  }
  Bytes item(const StreamShape& s) const { return s.tapes > 0 ? p_.step.tape : state(); }
  std::int64_t whole(const StreamShape& s) const { return (p_.steps() - s.tail) / s.every; }
  std::int64_t items(const StreamShape& s) const {
    if (s.tapes > 0) return whole(s) * s.tapes;
    const std::int64_t kept = whole(s) - (s.save_first ? 0 : 1);
    return std::max<std::int64_t>(kept, 0) + (p_.options.length_unknown ? 1 : 0);
  }
  std::int64_t capacity(const StreamShape& s) const {
    return p_.tiers()[static_cast<std::size_t>(s.tier)].capacity / item(s);
  }

  // Bytes kept beside the inner phase while an interval is reversed, its start not counted.
  Bytes read_bytes(const StreamShape& s) const {
    return scale_bytes(item(s), s.ahead + (s.tapes > 0 ? 1 : 0));
  }
  Bytes interval_room(const StreamShape& s) const { return p_.room() - read_bytes(s); }
  Bytes tail_room(const StreamShape& s) const {
    return p_.room() - scale_bytes(item(s), whole(s) > 0 ? s.ahead : 0);
  }

  // The least bytes with which a shape works: no room inside intervals but what restarting needs.
  Bytes held(const StreamShape& s) const {
    const std::int64_t count = items(s);
    Bytes need = 0;
    if (count > 0) {
      need = scale_bytes(item(s), std::min<std::int64_t>(s.buffers, count));
      const bool alone = s.tapes == s.every;
      const std::int64_t reading =
          std::min<std::int64_t>(s.ahead + (s.tapes > 0 && !alone ? 1 : 0), count);
      need = std::max(need, scale_bytes(item(s), reading));
      const bool restarts = s.every > 1 && s.tapes == 0;
      if (restarts) need = std::max(need, add_bytes(scale_bytes(state(), s.ahead), state()));
    }
    const bool free_start = whole(s) == 0 && !s.save_first;
    if (s.tail > 1 && !free_start) {
      need = std::max(
          need, add_bytes(state(), scale_bytes(item(s), std::min<std::int64_t>(s.ahead, count))));
    }
    return need;
  }

  struct Inner {
    const Policy* policy = nullptr;
    std::int64_t room = 0;      // in the policy's units
    std::int64_t forwards = 0;  // at least
  };

  // `charged`: the start, if it is needed, takes a state's room.
  Inner inner(std::int64_t steps, Bytes room, bool charged) {
    if (p_.machine.states_only) {
      const std::int64_t slots = std::max<std::int64_t>(p_.states_in(room), 1);
      return {binomial_.get(), slots, steps < 1 ? 0 : steps + binomial_advances(steps, slots)};
    }
    if (!mix_)
      mix_ = uniform_mix_policy(longest(), state(), p_.step.tape, p_.room(), false, kInnerEntries,
                                p_.copy_forwards());
    if (charged && room < scale_bytes(p_.step.tape, steps - 1)) room -= state();
    const std::int64_t units = mix_->units_in(room);
    return {mix_.get(), units, mix_->forwards(steps, units)};
  }
  std::shared_ptr<const Policy> shared(const Inner& inner) const {
    if (inner.policy == binomial_.get()) return std::make_shared<Inside>(binomial_);
    return std::make_shared<Inside>(mix_);
  }

  // No replay of the shape is faster: all items are written by the end of the sweep and read after
  // it.
  double at_least(const StreamShape& s) {
    const double f = p_.step.forward;
    const Tier& tier = p_.tiers()[static_cast<std::size_t>(s.tier)];
    const auto n = static_cast<double>(whole(s));
    const auto count = static_cast<double>(items(s));
    const std::int64_t rest = s.every - s.tapes;
    const double sweep =
        n * (static_cast<double>(rest) * f + static_cast<double>(s.tapes) * p_.step.record);
    const std::int64_t inside = rest > 0 ? inner(rest, interval_room(s), s.tapes == 0).forwards : 0;
    const std::int64_t tail = inner(s.tail, tail_room(s), true).forwards;
    const double back =
        static_cast<double>(p_.steps()) * p_.step.backward +
        n * (static_cast<double>(inside - rest) * f + static_cast<double>(rest) * p_.step.record) +
        static_cast<double>(tail - s.tail) * f + static_cast<double>(s.tail) * p_.step.record;
    const double write = count * tier.write_seconds(item(s));
    const double read = count * tier.read_seconds(item(s));
    if (p_.machine.sync) return sweep + back + write + read;
    const double forth = s.buffers == 0 ? sweep + write : std::max(sweep, write);
    return forth + (s.ahead == 0 ? back + read : std::max(back, read));
  }

  // Those that fit, the most promising first.
  std::vector<Candidate> candidates(int tier) {
    std::vector<Candidate> out;
    visit(tier, true, [&](const StreamShape& s) {
      if (items(s) > capacity(s) || held(s) > p_.room()) return;
      out.push_back({s, at_least(s)});
    });
    std::stable_sort(out.begin(), out.end(), [](const Candidate& a, const Candidate& b) {
      return a.at_least < b.at_least;
    });
    return out;
  }

  std::vector<std::int64_t> intervals() const {
    const std::int64_t n = p_.steps();
    if (!p_.options.intervals.empty()) {
      const std::int64_t given = p_.options.intervals.front();
      return {p_.options.length_unknown ? given : std::min(given, std::max<std::int64_t>(n, 1))};
    }
    std::vector<std::int64_t> out;
    for (std::int64_t k = 1; k <= n; k = all() ? k + 1 : std::max(k + 1, k + k / 5))
      out.push_back(k);
    return out;
  }

  std::vector<std::int64_t> tape_counts(std::int64_t every) const {
    const bool stay = p_.machine.states_only || p_.machine.tapes_stay;
    if (!may_tape_ || stay || p_.options.length_unknown) return {0};
    std::vector<std::int64_t> out{0};
    const std::int64_t parts = all() ? every : 8;
    for (std::int64_t i = 1; i <= parts; ++i) {
      const std::int64_t tapes = std::max<std::int64_t>(every * i / parts, 1);
      if (tapes > out.back()) out.push_back(tapes);
    }
    return out;
  }

  // The tail takes what does not fill an interval and any number of whole ones: those of a series
  // that does not depend on the room and, to be searched for the fastest, as many as can be
  // recorded at once.
  std::vector<std::int64_t> tails(const StreamShape& s, bool by_room) const {
    const std::int64_t n = p_.steps();
    const std::int64_t least = (n - 1) % s.every + 1;
    if (p_.options.length_unknown) return {least};
    std::vector<std::int64_t> out;
    if (all()) {
      for (std::int64_t tail = least; tail <= n; tail += s.every) out.push_back(tail);
      return out;
    }
    for (std::int64_t tail = least; tail <= n;) {
      out.push_back(tail);
      // A given interval is the whole chain's.
      if (!p_.options.intervals.empty()) break;
      tail += std::max<std::int64_t>(tail / 5 / s.every, 1) * s.every;
    }
    if (out.back() != n && p_.options.intervals.empty()) out.push_back(n);
    if (!by_room) return out;
    const Bytes room =
        std::max<Bytes>(std::max<Bytes>(p_.room(), 0) - scale_bytes(item(s), s.ahead), 0);
    const std::int64_t at_once = std::min(room / p_.step.tape, n - 1) + 1;
    out.push_back(least + std::max<std::int64_t>(at_once - least, 0) / s.every * s.every);
    return out;
  }

  template <class Visit>
  void visit(int tier, bool by_room, const Visit& visit_shape) {
    StreamShape s;
    s.tier = tier;
    s.save_first = p_.machine.start_charged;
    for (const std::int64_t every : intervals()) {
      s.every = every;
      for (const std::int64_t tapes : tape_counts(every)) {
        s.tapes = tapes;
        for (s.ahead = 0; s.ahead <= 2; ++s.ahead) {
          for (s.buffers = tapes > 0 ? 1 : 0; s.buffers <= 2; ++s.buffers) {
            for (const std::int64_t tail : tails(s, by_room)) {
              s.tail = tail;
              visit_shape(s);
            }
          }
        }
      }
    }
  }

  double replayed_seconds(StreamShape shape) {
    const std::int64_t n = whole(shape);
    if (p_.steps() <= kReplayWhole || n <= 2 * kIntervals) return seconds(shape, p_.steps());
    // Intervals settle into a rhythm: two lengths give the time of one more.
    const double shorter = seconds(shape, shape.tail + kIntervals * shape.every);
    const double longer = seconds(shape, shape.tail + 2 * kIntervals * shape.every);
    return longer + (longer - shorter) * static_cast<double>(n - 2 * kIntervals) /
                        static_cast<double>(kIntervals);
  }

  double seconds(const StreamShape& shape, std::int64_t steps) {
    const auto source = cursor(shape, steps);
    const Chain chain = p_.chain.is_uniform() || steps < p_.steps()
                            ? Chain::uniform(steps, p_.step, p_.chain.call())
                            : p_.chain;
    const Prediction found = replay(chain, p_.machine, *source);
    replayed_ += found.actions;
    return found.seconds;
  }

  const Problem& p_;
  bool may_tape_;
  std::int64_t replayed_ = 0;  // actions
  std::shared_ptr<const Policy> binomial_ = std::make_shared<BinomialPolicy>(false);
  std::shared_ptr<const UniformMixPolicy> mix_;
};

Draft draft_stream(const Problem& p, bool tapes) {
  Draft draft;
  const std::optional<std::int64_t> steps =
      p.options.length_unknown ? std::nullopt : std::optional(p.steps());
  if (p.steps() == 0) {
    // Nothing to search by: every state goes to the first tier, should there be any.
    StreamShape plain{.buffers = 0, .ahead = 0, .save_first = p.machine.start_charged};
    const auto each = std::make_shared<Inside>(std::make_shared<BinomialPolicy>(false));
    draft.start = [plain, each, steps] {
      return std::make_unique<StreamCursor>(plain, StreamCursor::Rooms{each, each, 1, 1}, steps);
    };
    return draft;
  }
  Stream stream(p, tapes);
  const auto best = stream.fastest();
  if (!best) fail(ErrorCode::infeasible_budget, "stream: no pattern fits");
  const StreamShape shape = best->shape;
  const StreamCursor::Rooms rooms = stream.rooms(shape);
  draft.start = [shape, rooms, steps] {
    return std::make_unique<StreamCursor>(shape, rooms, steps);
  };
  draft.at_least = p.chain.is_uniform() ? best->at_least : unavoidable_seconds(p.chain);
  draft.parameters = {{"every", shape.every},
                      {"tapes", shape.tapes},
                      {"tail", shape.tail},
                      {"buffers", shape.buffers},
                      {"read ahead", shape.ahead}};
  return draft;
}

}  // namespace

Draft draft_async(const Problem& p) { return draft_stream(p, false); }
Draft draft_pofo(const Problem& p) { return draft_stream(p, true); }

Bytes least_stream(const Problem& p) {
  if (p.tiers().empty()) return kUnlimited;
  if (p.steps() == 0) return p.working();
  return add_bytes(p.working(), Stream(p, false).least());
}

}  // namespace ebb
