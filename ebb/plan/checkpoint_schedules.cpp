// SPDX-License-Identifier: Apache-2.0
#include "ebb/plan/checkpoint_schedules.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ebb/core/error.h"
#include "ebb/plan/text.h"

namespace ebb {
namespace {

using Step = std::int64_t;
using Said = ScheduleAction;
using Storage = ScheduleAction::Storage;
using Held = std::pair<std::int8_t, Step>;  // place, step

Held key_of(Place place, Step step) { return {place.id, step}; }

// What can be known only from the rest of the plan, by the number of the Copy of a state.
struct Foresight {
  std::vector<bool> last_use;  // its source is dropped before it is copied again
  std::vector<bool> used;      // its destination is copied from before it is dropped
  bool start_used = false;     // the caller's own state 0 is loaded at some time
};

Foresight foresee(const Plan& plan) {
  Foresight foresight;
  std::map<Held, std::size_t> written, read;  // the latest Copy to and from a place
  const auto cursor = plan.cursor();
  for (Action action; cursor->next(action);) {
    const auto* const copy = std::get_if<Copy>(&action);
    const auto* const drop = std::get_if<Drop>(&action);
    if (copy != nullptr && copy->item == Item::state) {
      const std::size_t number = foresight.used.size();
      const Held from = key_of(copy->from, copy->step);
      foresight.used.push_back(copy->to == Place::work);
      foresight.last_use.push_back(false);
      written[key_of(copy->to, copy->step)] = number;
      if (copy->from == Place::work) continue;
      read[from] = number;
      if (const auto found = written.find(from); found != written.end())
        foresight.used[found->second] = true;
      foresight.start_used |=
          copy->from == Place::fast && copy->step == 0 && !plan.machine.start_charged;
    } else if (drop != nullptr && drop->item == Item::state) {
      const Held key = key_of(drop->place, drop->step);
      if (const auto found = read.find(key); found != read.end())
        foresight.last_use[found->second] = true;
      read.erase(key);
      written.erase(key);
    }
  }
  for (const auto& [key, number] : read) foresight.last_use[number] = true;
  return foresight;
}

// Reads a cursor with a look ahead.
class Ahead {
 public:
  explicit Ahead(std::unique_ptr<Cursor> cursor) : cursor_(std::move(cursor)) {}

  bool next(Action& action) {
    if (seen_.empty()) return cursor_->next(action);
    action = seen_.front();
    seen_.pop_front();
    return true;
  }

  // The first step of the Reverse that follows before anything else is computed, if one does.
  std::optional<Step> reverse_follows() {
    for (std::size_t i = 0;; ++i) {
      Action action;
      if (i == seen_.size()) {
        if (!cursor_->next(action)) return std::nullopt;
        seen_.push_back(action);
      }
      if (const auto* reverse = std::get_if<Reverse>(&seen_[i])) return reverse->from;
      if (std::holds_alternative<Advance>(seen_[i]) || std::holds_alternative<Record>(seen_[i]))
        return std::nullopt;
    }
  }

 private:
  std::unique_ptr<Cursor> cursor_;
  std::deque<Action> seen_;
};

}  // namespace

class ScheduleCursor::Translation {
 public:
  Translation(const Plan& plan, Step steps, std::int64_t tapes_in_work)
      : plan_(plan),
        steps_(steps),
        tapes_in_work_(tapes_in_work),
        left_(steps),
        foresight_(foresee(plan)),
        ahead_(plan.cursor()) {
    if (foresight_.start_used) saves_.push_back(Place::fast);
    if (steps_ == 0) said_.push_back({.kind = ScheduleAction::Kind::end_forward});
  }

  bool next(Said& action) {
    while (said_.empty() && !ended_) go_on();
    if (said_.empty()) return false;
    action = said_.front();
    said_.pop_front();
    return true;
  }

 private:
  // A transfer between storages or into WORK, or a deletion (`to` is `from`), waiting for WORK to
  // be empty.
  struct Transfer {
    Step step;
    Place from, to;
    bool move;
  };

  void go_on() {
    Action action;
    if (ahead_.next(action)) {
      current_ = &action;
      std::visit([this](const auto& a) { translate(a); }, action);
      current_ = nullptr;
      return;
    }
    close();
    if (!queue_.empty()) refuse("it loads a state that no step runs from");
    said_.push_back({.kind = ScheduleAction::Kind::end_reverse});
    ended_ = true;
  }

  void translate(const Advance& a) {
    check_no_load_waits();
    if (open_ && saves_.empty()) {
      open_->second = a.to;
    } else {
      close();
      open_ = {a.from, a.to};
      open_saves_ = std::exchange(saves_, {});
    }
    live_ = a.to;
  }

  void translate(const Record& a) {
    check_no_load_waits();
    close();
    if (!saves_.empty()) refuse("it keeps the state and the tape of one step at once");
    const Step reversed_from = std::max(a.from, ahead_.reverse_follows().value_or(a.to));
    const Step kept_below = a.to - std::min(a.to - reversed_from, tapes_in_work_);
    for (Step step = a.from; step < kept_below; ++step) {
      forward(step, step + 1, false, true, Storage::ram);
      tapes_.insert(step);
    }
    if (kept_below < a.to) {
      forward(kept_below, a.to, false, true, Storage::work);
      work_tapes_ = {kept_below, a.to};
    }
    live_ = a.to;
    flush();
  }

  void translate(const Reverse& a) {
    close();
    Step last = a.to;
    if (work_tapes_) {
      last = work_tapes_->first;
      work_tapes_.reset();
      reverse(a.to, last);
    }
    for (; last > a.from; --last) {
      if (tapes_.erase(last - 1) == 0) refuse("its tape is not held");
      if (work_state_) refuse("it needs a tape while a loaded state waits in WORK");
      transfer(true, last - 1, Storage::ram, Storage::work);
      reverse(last, last - 1);
    }
    left_ = a.from;
    flush();
  }

  void translate(const Copy& a) {
    if (a.item == Item::tape) refuse("it transfers a tape");
    const std::size_t number = copies_++;
    if (!foresight_.used.at(number)) return;
    if (a.from == Place::work) {
      storage(a.to);
      saves_.push_back(a.to);
      return;
    }
    const bool move = foresight_.last_use.at(number);
    const auto saved = std::find(saves_.begin(), saves_.end(), a.from);
    if (live_ == a.step && saved != saves_.end() && a.to != Place::work) {
      if (move) saves_.erase(saved);  // it only passes through
      saves_.push_back(a.to);
      return;
    }
    if (a.to == Place::work) {
      if (!saves_.empty()) refuse("it overwrites a saved state that no step has run from");
      close();
      live_ = a.step;
    }
    queue_.push_back({a.step, a.from, a.to, move});
    flush();
  }

  void translate(const Drop& a) {
    if (a.item == Item::tape) refuse("it drops a tape that was not reversed");
    const auto saved = std::find(saves_.begin(), saves_.end(), a.place);
    if (live_ == a.step && saved != saves_.end()) {
      saves_.erase(saved);
      return;
    }
    queue_.push_back({a.step, a.place, a.place, true});
    flush();
  }

  bool work_is_empty() const { return !open_ && !work_state_ && !work_tapes_; }

  void flush() {
    while (!queue_.empty() && work_is_empty()) {
      const Transfer next = queue_.front();
      queue_.pop_front();
      perform(next);
    }
  }

  void perform(const Transfer& t) {
    const auto found = held_.find(key_of(t.from, t.step));
    if (t.from == t.to) {
      if (found == held_.end())
        return;  // moved away by its last use, or never used and not written
      transfer(true, t.step, storage(t.from), Storage::none);
      held_.erase(found);
      return;
    }
    if (found == held_.end()) refuse("it restarts from a tape");
    const Step reach = found->second;
    if (t.to == Place::work && reach < left_)
      refuse("it runs on from a state beyond the state saved after it");
    transfer(t.move, t.step, storage(t.from), storage(t.to));
    if (t.move) held_.erase(found);
    if (t.to == Place::work) {
      work_state_ = true;
    } else {
      held_[key_of(t.to, t.step)] = reach;
    }
  }

  // Says the Advances gathered so far as one Forward.
  void close() {
    if (!open_) return;
    const auto [from, to] = *open_;
    open_.reset();
    if (open_saves_.empty()) {
      forward(from, to, false, false, Storage::work);
    } else {
      const Place first = open_saves_.front();
      forward(from, to, true, false, storage(first));
      for (const Place place : open_saves_) {
        if (place != first) transfer(false, from, storage(first), storage(place));
        held_[key_of(place, from)] = to;
      }
      open_saves_.clear();
    }
    flush();
  }

  void check_no_load_waits() const {
    const bool waits = std::any_of(queue_.begin(), queue_.end(),
                                   [](const Transfer& t) { return t.to == Place::work; });
    if (waits) refuse("the state it runs from cannot be loaded before it");
  }

  Storage storage(Place place) {
    if (place == Place::work) return Storage::work;
    if (place == Place::fast) return Storage::ram;
    if (!disk_) disk_ = place;
    if (place != *disk_) refuse("it uses a second slow tier");
    return Storage::disk;
  }

  void forward(Step n0, Step n1, bool write_ics, bool write_adj_deps, Storage to) {
    work_state_ = false;
    said_.push_back({.kind = ScheduleAction::Kind::forward,
                     .n0 = n0,
                     .n1 = n1,
                     .write_ics = write_ics,
                     .write_adj_deps = write_adj_deps,
                     .to = to});
    if (n1 == steps_ && !std::exchange(forward_ended_, true))
      said_.push_back({.kind = ScheduleAction::Kind::end_forward});
  }

  void reverse(Step n1, Step n0) {
    said_.push_back({.kind = ScheduleAction::Kind::reverse, .n0 = n0, .n1 = n1});
  }

  void transfer(bool move, Step n, Storage from, Storage to) {
    said_.push_back({.kind = move ? ScheduleAction::Kind::move : ScheduleAction::Kind::copy,
                     .n0 = n,
                     .from = from,
                     .to = to});
  }

  [[noreturn]] void refuse(const char* why) const {
    const std::string action =
        current_ != nullptr ? to_json(*current_, plan_.machine.platform) : "its end";
    fail(ErrorCode::invalid_argument, "this plan of ", plan_.strategy,
         " cannot be said in checkpoint_schedules: at ", action, " ", why,
         "; a strategy that keeps only states in fast and one slow tier, such as revolve, can");
  }

  const Plan plan_;  // its own: it may outlive the one it was made from
  const Step steps_;
  const std::int64_t tapes_in_work_;
  Step left_;  // not yet reversed
  const Foresight foresight_;
  Ahead ahead_;
  const Action* current_ = nullptr;
  std::deque<Said> said_;  // not yet handed out
  bool ended_ = false;

  std::optional<Step> live_ = 0;
  std::vector<Place> saves_;                   // of the live state, not yet written by a Forward
  std::optional<std::pair<Step, Step>> open_;  // Advances not yet said
  std::vector<Place> open_saves_;              // of the state before them
  std::deque<Transfer> queue_;
  std::size_t copies_ = 0;
  std::map<Held, Step> held_;  // states in RAM or DISK, and where the Forward that wrote them ended
  std::set<Step> tapes_;       // in RAM
  bool work_state_ = false;
  std::optional<std::pair<Step, Step>> work_tapes_;
  std::optional<Place> disk_;
  bool forward_ended_ = false;
};

ScheduleCursor::ScheduleCursor(const Plan& plan, std::int64_t steps, std::int64_t tapes_in_work)
    : translation_(std::make_unique<Translation>(plan, steps, tapes_in_work)) {}
ScheduleCursor::~ScheduleCursor() = default;
ScheduleCursor::ScheduleCursor(ScheduleCursor&&) noexcept = default;
ScheduleCursor& ScheduleCursor::operator=(ScheduleCursor&&) noexcept = default;

bool ScheduleCursor::next(ScheduleAction& action) { return translation_->next(action); }

void check_checkpoint_schedules(const Plan& plan, std::int64_t steps) {
  ScheduleCursor cursor(plan, steps);
  for (ScheduleAction action; cursor.next(action);) {
  }
}

}  // namespace ebb
