// SPDX-License-Identifier: Apache-2.0
// Stream: transfers hidden behind compute.
//
// Kukreja, Hueckelheim, Gorman 2018 (async); Beaumont, Eyraud-Dubois, Shilova 2021 (POFO).
// Model: the forward sweep goes in intervals of `every` steps. Of each, the tapes of the first
// `tapes` steps go to a slow tier while compute runs on, or with tapes = 0 the state before it. The
// last steps, `tail` of them, are reversed from the live state. Then interval after interval is
// read back ahead of its use, its other steps are recomputed with an optimal mix of states and
// tapes (binomial slots when only states are counted) and reversed. async: tapes = 0. pofo: any.
// What is being written (`buffers` items) and what is read ahead (`ahead` items) lies inside the
// budget. Departs from the papers: the inner phase is optimal instead of store-all; the tail is as
// long as memory allows; any remainder; the interval is searched, not set to write / forward;
// without N the same sweep goes on until finish(n). POFO's programme chooses per stage; here the
// choice is one pattern for all intervals, which is what a uniform chain has. For up to kSearchAll
// steps every pattern is tried in replay, beyond that a geometric choice of them by its lower
// bound.
#pragma once

#include "ebb/plan/draft.h"

namespace ebb {

Draft draft_async(const Problem& problem);
Draft draft_pofo(const Problem& problem);
Bytes least_stream(const Problem& problem);

}  // namespace ebb
