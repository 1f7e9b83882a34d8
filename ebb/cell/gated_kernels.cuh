// SPDX-License-Identifier: Apache-2.0
// The kernels behind gated.h. A block owns some units and keeps their rows of the recurrent weights, in shared memory or, where a
// block has one team, as many as fit in its registers; a team of 8 warps
// owns a slice of 16 samples, or two such slices, one after the other. In each time step a team's warps share the sum over units of the
// step before, put their parts together in shared memory, and each thread finishes one unit of one sample or of two. Two teams of a block
// are strangers to each other: while one waits for other blocks, the other one computes.
//
// What holds a step up is how fast the L2 cache hands out what others have written: each block reads its samples whole. So the more
// units a block has, the fewer samples it needs, and the less is read.
//
// To be included after gated_numbers.cuh, or after what stands in for it.
#pragma once

#include <cstdint>
#include <type_traits>

#include "ebb/cell/egru_math.h"
#include "ebb/cell/gated_product.cuh"
#include "ebb/cell/gru_math.h"
#include "ebb/cell/lstm_math.h"
#include "ebb/cell/rnn_math.h"

namespace ebb::gated {

// Time steps before it is used that what lies in far memory is called for.
constexpr int kAhead = 2;
// Of numbers that lie together, those with which a piece of memory begins that is called for as a whole.
template <class T>
__device__ __forceinline__ bool begins(int number) {
  return number % (32 / static_cast<int>(sizeof(T))) == 0;
}

// What the cells differ in beside their mathematics.
template <class Cell>
struct Kept {
  static constexpr bool kApart = Cell::kSums > Cell::kGates;  // the last product, of gru and egru
  static constexpr int kField = Cell::kFields > 1 ? 1 : (kApart ? 0 : -1);  // kept in float
  static constexpr bool kFields = Cell::kFields > 1;                        // recorded
  static constexpr bool kHeard = Cell::kEvents;  // where it is above a threshold: an egru
};

// Bytes of shared memory.
template <class Cell, class T>
int forward_shared(int units, int hidden, int teams, int kept) {
  const int rows = Cell::kGates * units;
  return rows_shared(rows, kept) * row_bytes(hidden, sizeof(T)) +
         teams * kWarps * part_size(rows) * 4;
}

template <class Cell, class T>
int backward_shared(int units, int hidden, int teams, int kept) {
  return rows_shared(units, kept * Cell::kGates) * row_bytes(Cell::kGates * hidden, sizeof(T)) +
         teams * 2 * kWarps * part_size(units) * 4;
}

// The numbers that a thread finishes of a slice: one unit, of this sample and of those a step further.
template <int units>
struct Own {
  static constexpr int kCount = units * kSlice > kTeam ? units* kSlice / kTeam : 1;
  static constexpr int kStep = kTeam / units;
  int unit, sample;
  bool finishes;

  explicit __device__ __forceinline__ Own(const Thread& me)
      : unit(me.mine % units),
        sample(me.mine / units % kSlice),
        finishes(me.mine < units * kSlice) {}
};

// The i-th sample of a team that a thread finishes, slice by slice.
template <int units>
__device__ __forceinline__ int place_of(int i, const Own<units>& mine) {
  constexpr int kCount = Own<units>::kCount;
  return i / kCount * kSlice + mine.sample + i % kCount * Own<units>::kStep;
}

// Writes what is not a number for the samples from `first` on that a thread finishes, where others did not come in time.
template <int units, int slices>
__device__ __forceinline__ void spoil(float* state, const Segment& s, int hidden, int first, int u,
                                      const Own<units>& mine) {
#pragma unroll
  for (int i = 0; i < slices * Own<units>::kCount; ++i) {
    const int b = first + place_of<units>(i, mine);
    if (state != nullptr && mine.finishes && b < s.end)
      state[static_cast<size_t>(b) * hidden + u] = not_a_number();
  }
}

template <class T>
struct Forward {
  const T* weights;
  const T* bias;
  T* sums;
  const T* before;
  const float* field_before;
  T* outputs;
  float* field_after;
  float* fields;
  T* products;
};
// With what an egru has beside: kernels of other cells are given no more than they read.
template <class T>
struct HeardForward : Forward<T> {
  const float* thresholds;
};
template <class Cell, class T>
using ForwardOf = std::conditional_t<Kept<Cell>::kHeard, HeardForward<T>, Forward<T>>;

template <class Cell, class T, int units, int slices, int kept, bool record>
__global__ void __launch_bounds__((kept > 0 ? 1 : kTeams) * kTeam, 1)
    forward(const Segment s, const ForwardOf<Cell, T> io) {
  using Of = Kept<Cell>;
  constexpr int kGates = Cell::kGates, kRows = kGates * units;
  const Place here = place();
  const int hidden = s.hidden, u0 = here.x * units;
  const Thread me(here.thread);
  Weights<T, kRows, kept> weights;
  std::uint8_t* const shared = shared_memory();
  take_weights(weights, shared, hidden, me, RowsOfUnits<T, units>{io.weights, hidden, u0, here});
  sync_block();
  std::uint8_t* const rest = shared + rows_shared(kRows, kept) * weights.stride;
  float* const parts = reinterpret_cast<float*>(rest) + me.team * kWarps * part_size(kRows);
  const int first = s.first + (here.y * s.teams + me.team) * slices * kSlice;
  const Own<units> mine(me);
  constexpr int kCount = Own<units>::kCount;
  const int u = u0 + mine.unit;
  float field[slices * kCount], bias = 0;
  float heard[Of::kHeard ? slices * kCount : 1], threshold = 0;
  if (Of::kApart && mine.finishes && io.bias != nullptr) bias = Multiplied<T>::to_float(io.bias[u]);
  if constexpr (Of::kHeard) {
    if (mine.finishes) threshold = io.thresholds[u];
  }
#pragma unroll
  for (int i = 0; i < slices * kCount; ++i) {
    const int b = first + place_of<units>(i, mine);
    field[i] = Of::kField >= 0 && mine.finishes && b < s.end
                   ? io.field_before[static_cast<size_t>(b) * hidden + u]
                   : 0.F;
    if constexpr (Of::kHeard) {
      heard[i] = mine.finishes && b < s.end
                     ? Multiplied<T>::to_float(io.before[static_cast<size_t>(b) * hidden + u])
                     : 0.F;
    }
  }
  constexpr int kTogether = together(kept);
  const auto samples = [&](int t, int part) {
    const T* const all = t == 0 ? io.before : io.outputs + s.at(t - 1) * hidden;
    return Samples < T, kept == 0 > (all, hidden, first + part * kSlice, s, me);
  };
  const auto own = [&](int t, int b) { return io.sums + (s.at(t) + b) * kGates * hidden + u; };
  uint4 ahead[2 * kTogether];
  bool looked = false;
  const int live = slices > 1 && first + kSlice >= s.end ? 1 : slices;
  for (int t = 0; t < s.steps && first < s.end; ++t) {
#pragma unroll
    for (int part = 0; part < slices; ++part) {
      if (part >= live) continue;
      T given[kCount][kGates];  // converted later, since that waits for them
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const int b = first + place_of<units>(part * kCount + i, mine);
        const bool real = mine.finishes && b < s.end;
#pragma unroll
        for (int k = 0; k < kGates; ++k) {
          const size_t at = static_cast<size_t>(k) * hidden;
          given[i][k] = real ? own(t, b)[at] : Multiplied<T>::of_float(0.F);
          if (real && begins<T>(mine.unit) && t + kAhead < s.steps)
            prefetch(own(t + kAhead, b) + at);
        }
      }
      const bool came = put_product(parts + me.warp * part_size(kRows), weights, samples(t, part),
                                    ahead, looked, s, me, t == 0, [&] {
                                      // All have read the parts before these.
                                      if (t > 0 || part > 0) sync_team(me.team);
                                    });
      if (any_of_team(me.team, !came)) {
        if (me.mine == 0) give_up(s.gave_up);
        spoil<units, slices>(Of::kField >= 0 ? io.field_after : nullptr, s, hidden, first, u, mine);
        return;
      }
      if constexpr (kept > 0) {
        const int then = part + 1 < live ? part + 1 : 0, when = then == 0 ? t + 1 : t;
        looked = live > 1 && when < s.steps;  // with one slice it is not there yet
        if (looked) look_at(ahead, samples(when, then), me.warp);
      }
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        float& carried = field[part * kCount + i];
        const int inside = mine.sample + i * Own<units>::kStep, b = first + part * kSlice + inside;
        const bool real = mine.finishes && b < s.end;
        float added[Cell::kSums], before[2] = {carried, carried}, after[2], saved[4];
#pragma unroll
        for (int k = 0; k < kGates; ++k) {
          const float product = all_parts<kRows>(parts, k * units + mine.unit, inside);
          if (Of::kApart && k == kGates - 1) {
            added[k] = Multiplied<T>::to_float(given[i][k]);
            added[Cell::kSums - 1] = product + bias;
          } else {
            added[k] = Multiplied<T>::to_float(given[i][k]) + product;
          }
        }
        if constexpr (Of::kHeard) before[0] = heard[part * kCount + i];
        UnitForward<float> unit_forward{added, before, 0, Of::kHeard ? &threshold : nullptr,
                                        after, saved,  0};
        Cell::forward(unit_forward, Constants<float>());
        if (Of::kField >= 0) carried = after[Of::kField >= 0 ? Of::kField : 0];
        // As others hear it, and the first step of the next segment.
        if constexpr (Of::kHeard)
          heard[part * kCount + i] = Multiplied<T>::to_float(Multiplied<T>::of_float(after[0]));
        tell(io.outputs + (s.at(t) + b) * hidden + u, after[0], real, here.thread);
        if (record && real) {
#pragma unroll
          for (int k = 0; k < (Cell::kSaved < kGates ? Cell::kSaved : kGates); ++k) {
            own(t, b)[static_cast<size_t>(k) * hidden] = Multiplied<T>::of_float(saved[k]);
          }
          if (Of::kApart)
            io.products[(s.at(t) + b) * hidden + u] = Multiplied<T>::of_float(saved[3]);
          if (Of::kFields) io.fields[(s.at(t) + b) * hidden + u] = carried;
        }
      }
    }
  }
#pragma unroll
  for (int i = 0; i < slices * kCount; ++i) {
    const int b = first + place_of<units>(i, mine);
    if (Of::kField >= 0 && mine.finishes && b < s.end)
      io.field_after[static_cast<size_t>(b) * hidden + u] = field[i];
  }
}

template <class T>
struct Backward {
  const T* weights;
  const T* gates;
  const float* fields;
  const T* products;
  const T* outputs;
  const T* before;
  const float* field_before;
  const T* outputs_gradient;
  const float* after_gradient;
  const float* field_gradient;
  T* sums_gradient;
  T* inputs_gradient;
  float* before_gradient;
  float* field_before_gradient;
};
template <class T>
struct HeardBackward : Backward<T> {
  const float* thresholds;
  float* thresholds_gradient;
  Surrogate surrogate;
  float sharpness;
};
template <class Cell, class T>
using BackwardOf = std::conditional_t<Kept<Cell>::kHeard, HeardBackward<T>, Backward<T>>;

template <class Cell, class T, int units, int slices, int kept>
__global__ void __launch_bounds__((kept > 0 ? 1 : kTeams) * kTeam, 1)
    backward(const Segment s, const BackwardOf<Cell, T> io) {
  using Of = Kept<Cell>;
  constexpr int kGates = Cell::kGates;
  const Place here = place();
  const int hidden = s.hidden, width = kGates * hidden, u0 = here.x * units;
  const Thread me(here.thread);
  Weights<T, units, kept> weights;
  std::uint8_t* const shared = shared_memory();
  take_weights(weights, shared, width, me,
               ColumnsOfUnits<T, units>{io.weights, hidden, width, u0, here});
  sync_block();
  std::uint8_t* const rest = shared + rows_shared(units, kept) * weights.stride;
  float* const parts = reinterpret_cast<float*>(rest) + me.team * 2 * kWarps * part_size(units);
  const int first = s.first + (here.y * s.teams + me.team) * slices * kSlice;
  const Own<units> mine(me);
  constexpr int kCount = Own<units>::kCount;
  constexpr int kSaved = Cell::kSaved < kGates ? Cell::kSaved : kGates;
  const int u = u0 + mine.unit;
  float carried[slices * kCount], of_field[slices * kCount];
  float of_threshold[Of::kHeard ? slices * kCount : 1] = {}, threshold = 0;
  if constexpr (Of::kHeard) {
    if (mine.finishes) threshold = io.thresholds[u];
  }
#pragma unroll
  for (int i = 0; i < slices * kCount; ++i) {
    const int b = first + place_of<units>(i, mine);
    const bool real = mine.finishes && b < s.end;
    carried[i] = real ? io.after_gradient[static_cast<size_t>(b) * hidden + u] : 0.F;
    of_field[i] =
        Of::kFields && real ? io.field_gradient[static_cast<size_t>(b) * hidden + u] : 0.F;
  }
  constexpr int kTogether = together(kept);
  const auto samples = [&](int t, int part) {
    return Samples < T, kept == 0 > (io.sums_gradient + s.at(t + 1) * width, width,
                                     first + part * kSlice, s, me);
  };
  uint4 ahead[2 * kTogether];
  bool looked = false;
  const int live = slices > 1 && first + kSlice >= s.end ? 1 : slices;
  int turn = 0;
  for (int t = s.steps - 1; t >= -1 && first < s.end; --t) {
#pragma unroll
    for (int part = 0; part < slices; ++part) {
      if (part >= live) continue;
      float before[kCount][2] = {}, after[kCount][2] = {}, saved[kCount][4] = {}, output[kCount];
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const int b = first + place_of<units>(part * kCount + i, mine);
        const bool uses = mine.finishes && b < s.end && t >= 0;
        output[i] = carried[part * kCount + i];
        if (!uses) continue;
        const size_t row = s.at(t) + b, now = row * hidden + u,
                     last = static_cast<size_t>(b) * hidden + u;
#pragma unroll
        for (int k = 0; k < kSaved; ++k) {
          saved[i][k] =
              Multiplied<T>::to_float(io.gates[row * width + u + static_cast<size_t>(k) * hidden]);
        }
        if (Of::kApart) saved[i][3] = Multiplied<T>::to_float(io.products[now]);
        if (Of::kFields) {
          after[i][1] = io.fields[now];
          before[i][1] = t == 0 ? io.field_before[last] : io.fields[(s.at(t - 1) + b) * hidden + u];
        } else if (Of::kApart) {
          before[i][0] = Multiplied<T>::to_float(
              t == 0 ? io.before[last] : io.outputs[(s.at(t - 1) + b) * hidden + u]);
        } else {
          after[i][0] = Multiplied<T>::to_float(io.outputs[now]);
        }
        if (io.outputs_gradient != nullptr)
          output[i] += Multiplied<T>::to_float(io.outputs_gradient[now]);
        if (begins<T>(mine.unit) && t >= kAhead) {
          const size_t then = s.at(t - kAhead) + b;
#pragma unroll
          for (int k = 0; k < kSaved; ++k)
            prefetch(io.gates + then * width + u + static_cast<size_t>(k) * hidden);
          if (io.outputs_gradient != nullptr) prefetch(io.outputs_gradient + then * hidden + u);
        }
        if (Of::kFields && begins<float>(mine.unit) && t > kAhead)
          prefetch(io.fields + (s.at(t - 1 - kAhead) + b) * hidden + u);
      }
      if (t < s.steps - 1) {
        float* const both = parts + turn * kWarps * part_size(units);
        turn ^= 1;  // those before may still be read
        const bool came = put_product(both + me.warp * part_size(units), weights, samples(t, part),
                                      ahead, looked, s, me, false, [] {});
        if (any_of_team(me.team, !came)) {
          if (me.mine == 0) give_up(s.gave_up);
          spoil<units, slices>(io.before_gradient, s, hidden, first, u, mine);
          spoil<units, slices>(Of::kFields ? io.field_before_gradient : nullptr, s, hidden, first,
                               u, mine);
          return;
        }
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
          if (mine.finishes)
            output[i] += all_parts<units>(both, mine.unit, mine.sample + i * Own<units>::kStep);
        }
      }
      if constexpr (kept > 0) {
        const int then = part + 1 < live ? part + 1 : 0, when = then == 0 ? t - 1 : t;
        looked = live > 1 && when >= -1 && when < s.steps - 1;
        if (looked) look_at(ahead, samples(when, then), me.warp);
      }
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const int b = first + place_of<units>(part * kCount + i, mine);
        const bool real = mine.finishes && b < s.end;
        float& of_own = of_field[part * kCount + i];
        if (t < 0) {
          const size_t at = static_cast<size_t>(b) * hidden + u;
          if (real) io.before_gradient[at] = output[i];
          if (Of::kFields && real) io.field_before_gradient[at] = of_own;
          if constexpr (Of::kHeard) {
            if (real && io.thresholds_gradient != nullptr)
              io.thresholds_gradient[at] = of_threshold[part * kCount + i];
          }
          continue;
        }
        float adjoint[2] = {0, of_own}, of_sums[4];
        UnitBackward<float> unit_backward{before[i], after[i],  saved[i], 0,       0,
                                          nullptr,   output[i], adjoint,  of_sums, nullptr};
        if constexpr (Of::kHeard) {
          unit_backward.slope = slope_at(io.surrogate, after[i][1] - threshold, io.sharpness);
          unit_backward.parameters = &threshold;
          unit_backward.of_parameters = &of_threshold[part * kCount + i];
        }
        Cell::backward(unit_backward, Constants<float>());
        carried[part * kCount + i] = unit_backward.output;
        of_own = adjoint[1];
#pragma unroll
        for (int k = 0; k < kGates; ++k) {
          const bool apart = Of::kApart && k == kGates - 1;
          const size_t at = (s.at(t) + b) * width + u + static_cast<size_t>(k) * hidden;
          tell(io.sums_gradient + at, of_sums[apart ? Cell::kSums - 1 : k], real, here.thread);
          if (Of::kApart && real) io.inputs_gradient[at] = Multiplied<T>::of_float(of_sums[k]);
        }
      }
    }
  }
}

}  // namespace ebb::gated