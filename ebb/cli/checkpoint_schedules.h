// SPDX-License-Identifier: Apache-2.0
// Plans in the vocabulary of the Python package checkpoint_schedules, so that its users and
// validators can run them.
//
// One JSON object a line:
// {"action":"Forward","n0":0,"n1":3,"write_ics":true,"write_adj_deps":false,"storage":"RAM"},
// {"action":"Reverse","n1":3,"n0":2,"clear_adj_deps":true},
// {"action":"Copy","n":0,"from_storage":"DISK", "to_storage":"WORK"}, the same with Move,
// {"action":"EndForward"}, {"action":"EndReverse"}. Keys are the parameters of the package's
// classes; storages are the names of its StorageType. fast is RAM, the slow tier is DISK.
//
// There, time does not overlap, `WORK` holds one thing at a time, and a checkpoint is written by
// the Forward that starts at it and restarts only the steps that Forward ran. So transfers started
// ahead are said where they are needed, an initial state that is the caller's own is written by the
// first Forward, the last load of a state is a Move, and what is never loaded is not written.
#pragma once

#include <cstdint>
#include <iosfwd>

#include "ebb/plan/plan.h"

namespace ebb {

// Writes the actions of a plan for `steps` steps. Throws Error(invalid_argument) that names the
// first action which cannot be said there (a restart from a tape, a transfer of a tape, a second
// slow tier); nothing is written then. Takes three turns of the plan's cursor, O(items held) memory
// and two bits per copy.
void write_checkpoint_schedules(const Plan& plan, std::int64_t steps, std::ostream& out);
// Throws what writing would.
void check_checkpoint_schedules(const Plan& plan, std::int64_t steps);

}  // namespace ebb
