// SPDX-License-Identifier: Apache-2.0
// The actions of a plan, one at a time, and replay of any others. For Python an action is a tuple:
// (0, from, to) advance, (1, from, to) record, (2, from, to) reverse, (3, item, step, from, to)
// copy, (4, item, step, place) drop. An item is 0 for a state, 1 for a tape; a place is -1 for
// work, 0 for fast, 1 and more for the tiers in order.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "ebb/core/error.h"
#include "ebb/plan/checkpoint_schedules.h"
#include "ebb/plan/plan.h"
#include "ebb/plan/replay.h"
#include "python/core/topics.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace ebb::python {
namespace {

template <class... Parts>
nb::object row(const Parts&... parts) {
  return nb::make_tuple(parts...);
}

int number_of(Place place) { return place.id - 1; }
int number_of(Item item) { return item == Item::tape ? 1 : 0; }

nb::object row_of(const Advance& a) { return row(0, a.from, a.to); }
nb::object row_of(const Record& a) { return row(1, a.from, a.to); }
nb::object row_of(const Reverse& a) { return row(2, a.from, a.to); }
nb::object row_of(const Copy& a) {
  return row(3, number_of(a.item), a.step, number_of(a.from), number_of(a.to));
}
nb::object row_of(const Drop& a) { return row(4, number_of(a.item), a.step, number_of(a.place)); }

// The same the other way; what makes no sense as a place is left for replay to refuse.
Place place_of(std::int64_t number) {
  if (number < -1 || number >= std::numeric_limits<std::int8_t>::max()) {
    fail(ErrorCode::invalid_argument, "replay: place ", number, "; there is none of that number");
  }
  return Place{static_cast<std::int8_t>(number + 1)};
}

Action action_of(const nb::tuple& row) {
  const auto at = [&row](std::size_t i) { return nb::cast<std::int64_t>(row[i]); };
  const auto item = [&at] { return at(1) == 0 ? Item::state : Item::tape; };
  switch (at(0)) {
    case 0:
      return Advance{at(1), at(2)};
    case 1:
      return Record{at(1), at(2)};
    case 2:
      return Reverse{at(1), at(2)};
    case 3:
      return Copy{item(), place_of(at(3)), place_of(at(4)), at(2)};
    case 4:
      return Drop{item(), place_of(at(3)), at(2)};
    default:
      fail(ErrorCode::invalid_argument, "replay: kind of action ", at(0), "; it must be 0 to 4");
  }
}

class PythonCursor : public Cursor {
 public:
  explicit PythonCursor(nb::iterator rows) : rows_(std::move(rows)) {}
  bool next(Action& action) override {
    if (rows_ == nb::iterator::sentinel()) return false;
    action = action_of(nb::cast<nb::tuple>(*rows_));
    ++rows_;
    return true;
  }

 private:
  nb::iterator rows_;
};

Prediction replay_rows(const Chain& chain, const Platform& platform, const nb::iterable& rows,
                       std::optional<Bytes> working, bool start_charged, bool states_only,
                       bool sync) {
  Machine machine;
  machine.platform = platform;
  machine.working = working;
  machine.start_charged = start_charged;
  machine.states_only = states_only;
  machine.sync = sync;
  PythonCursor cursor(nb::iter(rows));
  return replay(chain, machine, cursor);
}

// (0, n0, n1, write_ics, write_adj_deps, storage) Forward, (1, n1, n0) Reverse, (2, n, from, to)
// Copy, (3, n, from, to) Move, (4,) EndForward, (5,) EndReverse; storages 0 NONE, 1 WORK, 2 RAM,
// 3 DISK.
nb::object row_of(const ScheduleAction& a) {
  using Kind = ScheduleAction::Kind;
  const int kind = static_cast<int>(a.kind);
  switch (a.kind) {
    case Kind::forward:
      return row(kind, a.n0, a.n1, a.write_ics, a.write_adj_deps, static_cast<int>(a.to));
    case Kind::reverse:
      return row(kind, a.n1, a.n0);
    case Kind::copy:
    case Kind::move:
      return row(kind, a.n0, static_cast<int>(a.from), static_cast<int>(a.to));
    default:
      return row(kind);
  }
}

// Which storages a schedule uses, by number. Throws what its cursor would.
std::vector<int> schedule_storages(const Plan& plan, std::int64_t steps,
                                   std::int64_t tapes_in_work) {
  std::array<bool, 4> used{};
  ScheduleCursor cursor(plan, steps, tapes_in_work);
  for (ScheduleAction action; cursor.next(action);) {
    used[static_cast<std::size_t>(action.from)] = true;
    used[static_cast<std::size_t>(action.to)] = true;
  }
  std::vector<int> numbers;
  for (int number = 0; number < 4; ++number) {
    if (used[static_cast<std::size_t>(number)]) numbers.push_back(number);
  }
  return numbers;
}

}  // namespace

void bind_actions(nb::module_& module) {
  nb::class_<Cursor>(module, "Cursor")
      .def("__iter__", [](nb::handle self) { return self; })
      .def("__next__",
           [](Cursor& cursor) {
             Action action;
             if (!cursor.next(action)) throw nb::stop_iteration();
             return std::visit([](const auto& a) { return row_of(a); }, action);
           })
      .def("finish", &Cursor::finish, "steps"_a);
  module.def("cursor", [](const Plan& plan) { return plan.cursor(); }, "plan"_a);
  module.def("replay", &replay_rows, "chain"_a, "platform"_a, "actions"_a, "working"_a.none(),
             "start_charged"_a, "states_only"_a, "sync"_a);
  nb::class_<ScheduleCursor>(module, "ScheduleCursor")
      .def(nb::init<const Plan&, std::int64_t, std::int64_t>(), "plan"_a, "steps"_a,
           "tapes_in_work"_a = kUnlimited)
      .def("__iter__", [](nb::handle self) { return self; })
      .def("__next__", [](ScheduleCursor& cursor) {
        ScheduleAction action;
        if (!cursor.next(action)) throw nb::stop_iteration();
        return row_of(action);
      });
  module.def("schedule_storages", &schedule_storages, "plan"_a, "steps"_a,
             "tapes_in_work"_a = kUnlimited, nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace ebb::python
