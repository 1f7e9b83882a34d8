// SPDX-License-Identifier: Apache-2.0
// Replay: a plan run on paper. It checks every rule of the action machine and counts time, memory
// and traffic. It shares no code with the algorithms whose plans it judges.
//
// RULES
//  work   holds the live state, which is the state before some step p. At the start p = 0. It is
//         overwritten, never emptied.
//  fast   holds states and tapes. With !start_charged it also holds state 0 from the start,
//         uncharged, for ever: it can be loaded at any time, cannot be dropped and is not copied
//         there again.
//  R      is the number of steps not yet reversed; at the start R = N. Step R-1 is the one
//         reversed next.
//  Advance[a,b)  0 <= a < b <= R, live state a; afterwards the live state is b.
//  Record[a,b)   the same; a tape of a step in [a,b) must not be in fast already. Leaves tapes
//                a..b-1 in fast.
//  Reverse[a,b)  a < b == R, tapes a..b-1 in fast; afterwards R = a and those tapes are gone.
//  Copy          source holds the item, destination does not; from != to; not from one slow tier to
//                another; tapes never in `work`; a state s is copied only while s < R. A tape i in
//                fast holds state i+1 (a tape is whole in itself): Copy{state, fast -> anywhere,
//                i+1} is legal when tape i is in fast, even if state i+1 is not kept there by
//                itself. Copy to `work` overwrites the live state. Copy from `work` needs the live
//                state to be that step.
//  Drop          the place (not `work`) holds the item.
//  tapes_stay    no tape is copied.
//  states_only   Record[a,b) needs b == R and b - a == 1, and no tape is copied.
//  At the end R = 0, and nothing is left in any place but the caller's state 0 and the live state:
//  every plan drops what it kept.
//
// TIME
//  Compute is one lane; actions are reached in order, each when the compute lane is done with the
//  one before: an Advance, Record or Reverse when it has run, a Copy when it is handed out, a Drop
//  when it has waited. Advance, Record and Reverse take chain.call() + the sum over their steps on
//  the compute lane. Copies between work and fast wait for their source and take bytes/copy_rate on
//  the compute lane; where that rate is infinite they take no time and compute does not wait for
//  them: they arrive when they are reached or, if that is later, when their source arrives. Copies
//  to or from a slow tier run on that tier's write or read lane (one lane for both when !duplex), first
//  come first served: start = max(lane free, time reached, source arrived), end = start + latency +
//  bytes/rate. The compute lane goes on at once.
//  Whatever needs an item waits until it has arrived: compute for the live state and for the tapes
//  it reverses, a transfer for its source. Overwriting `work` (Advance, Record, Copy to work) waits
//  for the transfers out of and into `work`; Drop and Reverse (which frees tapes, and waits for all
//  of them before it starts) wait for the transfers out of and into the item at that place. Waiting
//  of the compute lane is stall.
//  sync: every transfer runs on the compute lane, and is not stall.
//  seconds is when the compute lane has done its last action.
//
// MEMORY depends on the position in the list of actions, never on the clock. At every action
//    working set + everything else held in fast <= platform.fast
//    everything held in a tier <= its capacity
//  where items arriving by the action are held already, items that leave by it are held still. The
//  working set is machine.working if given, else the sum of
//    the live state: the largest (while live) among those `work` holds during the action; an Advance[a,b)
//      or Record[a,b) passes states a..b. The final state, before no step, is the caller's output:
//      0 bytes; a live state p >= R when the action is reached (nothing can be run from it any
//      more) counts 0 bytes,
//    the adjoint of the step that is reversed next (0 when R = 0),
//    scratch: the largest among the steps that the action runs or reverses, else 0,
//    the tape of the step that is reversed next, whether or not it is in fast at the time (so its
//      room is always kept; in fast it is not counted again).
//  A Reverse[a,b) is checked step by step: its peak is the largest over the steps.
#pragma once

#include "ebb/plan/chain.h"
#include "ebb/plan/machine.h"
#include "ebb/plan/plan.h"

namespace ebb {

// Told by replay what happens when, in the order of the actions. Seconds count from the first one.
class ReplayWatch {
 public:
  ReplayWatch() = default;
  ReplayWatch(const ReplayWatch&) = delete;
  ReplayWatch& operator=(const ReplayWatch&) = delete;
  virtual ~ReplayWatch() = default;

  // An Advance, Record or Reverse ran.
  virtual void ran(const Action& action, double start, double end) = 0;
  // A Copy took its turn. Between work and fast it may take no time.
  virtual void copied(const Copy& action, Bytes bytes, double start, double end) = 0;
  virtual void waited(double start, double end) = 0;
  // What a place holds from then on, in fast the working set included; more than once at a time where it changes at once.
  virtual void held(Place place, Bytes bytes, double at) = 0;
};

struct ReplayOptions {
  // For cursors of unknown length: finish(chain.steps()) is called when an Advance reaches or
  // passes the end, where that Advance stops.
  bool length_unknown = false;
  ReplayWatch* watch = nullptr;
};

// Throws Error(invalid_argument) that names the action, its index (the first is 0) and the rule it
// breaks, budgets included. Allocates O(items held); for chains whose steps differ also O(N), as
// the chain itself.
Prediction replay(const Chain& chain, const Machine& machine, Cursor& cursor,
                  const ReplayOptions& options = {});

}  // namespace ebb
