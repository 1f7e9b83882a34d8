// SPDX-License-Identifier: Apache-2.0
// Binomial: the closed forms of reversal with equal slots.
//
// Griewank & Walther 2000 (Revolve, Algorithm 799); Gruslys et al. 2016 (BPTT-HSM, BPTT-ISM).
// Model: uniform steps, s slots in fast that hold one state each (hsm) or one tape each (ism), the
// slot of the segment's start included; the tape in use needs no slot. hsm runs N + P(N,s)
// forwards, ism P(N+1,s); both are optimal in that model whatever the costs of forward, record and
// backward. ism is the same schedule over N+1 steps: a tape holds the state after its step, so
// keeping tape y saves the forward that keeping state y would repeat. Departs from the papers:
// 64-bit counts without limits; what no one loads again is not saved, and a state is dropped at its
// last load.
#pragma once

#include <cstdint>

#include "ebb/plan/draft.h"

namespace ebb {

// beta(s,r) = C(s+r,s), the longest chain reversible with s slots when no step is advanced more
// than r times; 0 for negative arguments, kUnlimited when it is larger.
std::int64_t beta(std::int64_t s, std::int64_t r);

// P(l,s): the least number of advances that reverse l >= 1 steps with s >= 1 slots. l <= 3e9 never
// overflows.
std::int64_t binomial_advances(std::int64_t l, std::int64_t s);

// How far the optimal schedule advances before it keeps its next state: 1 <= y < l, for l >= 2, s
// >= 2. `repeats` is in: an upper bound of r(l,s) or 0; out: r(l,s).
std::int64_t binomial_split(std::int64_t l, std::int64_t s, std::int32_t& repeats);

// Segment::room is s. With `tapes` ism, else hsm.
class BinomialPolicy : public Policy {
 public:
  explicit BinomialPolicy(bool tapes) : tapes_(tapes) {}
  Choice choose(const Segment& segment) const override;

 private:
  bool tapes_;
};

// What replay finds for hsm on a uniform chain, in closed form.
Prediction forecast_hsm(const Problem& problem, std::int64_t slots);

Draft draft_constant(const Problem& problem);
Draft draft_hsm(const Problem& problem);
Draft draft_ism(const Problem& problem);
Bytes least_binomial(const Problem& problem);

}  // namespace ebb
