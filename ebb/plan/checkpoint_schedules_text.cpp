// SPDX-License-Identifier: Apache-2.0
// Schedules as JSON lines.
#include <ostream>
#include <sstream>

#include "ebb/plan/checkpoint_schedules.h"

namespace ebb {
namespace {

using Storage = ScheduleAction::Storage;

const char* name_of(Storage storage) {
  switch (storage) {
    case Storage::none:
      return "NONE";
    case Storage::work:
      return "WORK";
    case Storage::ram:
      return "RAM";
    case Storage::disk:
      return "DISK";
  }
  return "";
}

const char* word_of(bool value) { return value ? "true" : "false"; }

}  // namespace

std::string to_json(const ScheduleAction& a) {
  std::ostringstream out;
  switch (a.kind) {
    case ScheduleAction::Kind::forward:
      out << R"({"action":"Forward","n0":)" << a.n0 << R"(,"n1":)" << a.n1 << R"(,"write_ics":)"
          << word_of(a.write_ics) << R"(,"write_adj_deps":)" << word_of(a.write_adj_deps)
          << R"(,"storage":")" << name_of(a.to) << R"("})";
      break;
    case ScheduleAction::Kind::reverse:
      out << R"({"action":"Reverse","n1":)" << a.n1 << R"(,"n0":)" << a.n0
          << R"(,"clear_adj_deps":true})";
      break;
    case ScheduleAction::Kind::copy:
    case ScheduleAction::Kind::move:
      out << R"({"action":")" << (a.kind == ScheduleAction::Kind::move ? "Move" : "Copy")
          << R"(","n":)" << a.n0 << R"(,"from_storage":")" << name_of(a.from)
          << R"(","to_storage":")" << name_of(a.to) << R"("})";
      break;
    case ScheduleAction::Kind::end_forward:
      return R"({"action":"EndForward"})";
    case ScheduleAction::Kind::end_reverse:
      return R"({"action":"EndReverse"})";
  }
  return out.str();
}

void write_checkpoint_schedules(const Plan& plan, std::int64_t steps, std::ostream& out) {
  check_checkpoint_schedules(plan, steps);
  ScheduleCursor cursor(plan, steps);
  for (ScheduleAction action; cursor.next(action);) out << to_json(action) << '\n';
}

}  // namespace ebb
