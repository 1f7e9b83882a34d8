// SPDX-License-Identifier: Apache-2.0
// The kernels behind gated.h. A block owns some units and keeps their rows of the recurrent weights; a team of 8 warps
// owns a slice of 16 samples, or two such slices, one after the other. In each time step a team's warps share the sum over units of the
// step before, put their parts together in shared memory, and each thread finishes one unit of one sample. Two teams of a block
// are strangers to each other: while one waits for other blocks, the other one computes.
//
// To be included after gated_numbers.cuh, or after what stands in for it.
#pragma once

#include <cstdint>

#include "ebb/cell/gated_product.cuh"
#include "ebb/cell/gru_math.h"
#include "ebb/cell/lstm_math.h"
#include "ebb/cell/rnn_math.h"

namespace ebb::gated {

// What the cells differ in beside their mathematics.
template <class Cell>
struct Kept {
  static constexpr bool kApart = Cell::kSums > Cell::kGates;  // a gru's last product stands apart
  static constexpr int kField = Cell::kFields > 1 ? 1 : (kApart ? 0 : -1);  // kept in float
  static constexpr bool kFields = Cell::kFields > 1;                        // recorded
};

// Bytes of shared memory.
template <class Cell, class T>
int forward_shared(int units, int hidden, int teams, bool kept) {
  const int rows = Cell::kGates * units;
  return (kept ? 0 : rows * row_bytes(hidden, sizeof(T))) + teams * kWarps * part_size(rows) * 4;
}

template <class Cell, class T>
int backward_shared(int units, int hidden, int teams, bool kept) {
  return (kept ? 0 : units * row_bytes(Cell::kGates * hidden, sizeof(T))) +
         teams * 2 * kWarps * part_size(units) * 4;
}

// Writes what is not a number for the samples from `first` on that a thread finishes, where others did not come in time.
template <int slices>
__device__ __forceinline__ void spoil(float* state, const Segment& s, int hidden, int first, int u,
                                      bool finishes) {
#pragma unroll
  for (int part = 0; part < slices; ++part) {
    const int b = first + part * kSlice;
    if (state != nullptr && finishes && b < s.end)
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

template <class Cell, class T, int units, int slices, int kept, bool record>
__global__ void __launch_bounds__((kept > 0 ? 1 : kTeams) * kTeam, 1)
    forward(const Segment s, const Forward<T> io) {
  using Of = Kept<Cell>;
  constexpr int kGates = Cell::kGates, kRows = kGates * units;
  const Place here = place();
  const int hidden = s.hidden, u0 = here.x * units;
  const Thread me(here.thread);
  const auto vector = [&](int row, int k) {
    return *reinterpret_cast<const uint4*>(
        io.weights + (static_cast<size_t>(row / units) * hidden + u0 + row % units) * hidden + k);
  };
  Weights<T, kRows, kept> weights;
  std::uint8_t* rest = shared_memory();
  if constexpr (kept > 0) {
    weights.keep(me, vector);
  } else {
    constexpr int kVector = 16 / static_cast<int>(sizeof(T));
    weights.shared = rest;
    weights.stride = row_bytes(hidden, sizeof(T));
    for (int i = here.thread; i < kRows * (hidden / kVector); i += here.threads) {
      const int row = i / (hidden / kVector), k = i % (hidden / kVector);
      *reinterpret_cast<uint4*>(rest + row * weights.stride + k * 16) =
          Multiplied<T>::rounded(vector(row, k * kVector));
    }
    rest += kRows * weights.stride;
  }
  sync_block();
  float* const parts = reinterpret_cast<float*>(rest) + me.team * kWarps * part_size(kRows);
  const int first = s.first + (here.y * s.teams + me.team) * slices * kSlice;
  const int unit = me.mine % units, sample = me.mine / units % kSlice, u = u0 + unit;
  const bool finishes = me.mine < units * kSlice;
  float field[slices], bias = 0;
  if (Of::kApart && finishes && io.bias != nullptr) bias = Multiplied<T>::to_float(io.bias[u]);
#pragma unroll
  for (int part = 0; part < slices; ++part) {
    const int b = first + part * kSlice + sample;
    field[part] = Of::kField >= 0 && finishes && b < s.end
                      ? io.field_before[static_cast<size_t>(b) * hidden + u]
                      : 0.F;
  }
  constexpr int kTogether = together(kept, 4);
  const auto samples = [&](int t, int part) {
    const T* const all = t == 0 ? io.before : io.outputs + s.at(t - 1) * hidden;
    return Samples<T>(all, hidden, first + part * kSlice, s, me);
  };
  uint4 ahead[2 * kTogether];
  bool looked = false;
  const int live = slices > 1 && first + kSlice >= s.end ? 1 : slices;
  for (int t = 0; t < s.steps && first < s.end; ++t) {
#pragma unroll
    for (int part = 0; part < slices; ++part) {
      if (part >= live) continue;
      const int b = first + part * kSlice + sample;
      const bool real = finishes && b < s.end;
      T* const own = io.sums + (s.at(t) + b) * kGates * hidden + u;
      T given[kGates];  // converted later, since that waits for them
#pragma unroll
      for (int k = 0; k < kGates; ++k) {
        given[k] = real ? own[static_cast<size_t>(k) * hidden] : Multiplied<T>::of_float(0.F);
      }
      Sums<kRows> sums;
      const bool came = add_product<T, kRows, kept, kTogether>(sums, weights, samples(t, part),
                                                               ahead, looked, s, me, t == 0);
      if (t > 0 || part > 0) sync_team(me.team);  // all have read the parts before these
      put_parts<kRows>(parts + me.warp * part_size(kRows), sums, me);
      if (any_of_team(me.team, !came)) {
        if (me.mine == 0) give_up(s.gave_up);
        spoil<slices>(Of::kField >= 0 ? io.field_after : nullptr, s, hidden, first + sample, u,
                      finishes);
        return;
      }
      if constexpr (kept > 0) {
        const int then = part + 1 < live ? part + 1 : 0, when = then == 0 ? t + 1 : t;
        looked = live > 1 && when < s.steps;  // with one slice it is not there yet
        if (looked) look_at(ahead, samples(when, then), me.warp);
      }
      float added[Cell::kSums], before[2] = {field[part], field[part]}, after[2], saved[4];
#pragma unroll
      for (int k = 0; k < kGates; ++k) {
        const float product = all_parts<kRows>(parts, k * units + unit, sample);
        if (Of::kApart && k == kGates - 1) {
          added[k] = Multiplied<T>::to_float(given[k]);
          added[Cell::kSums - 1] = product + bias;
        } else {
          added[k] = Multiplied<T>::to_float(given[k]) + product;
        }
      }
      UnitForward<float> unit_forward{added, before, 0, nullptr, after, saved, 0};
      Cell::forward(unit_forward, Constants<float>());
      if (Of::kField >= 0) field[part] = after[Of::kField >= 0 ? Of::kField : 0];
      tell(io.outputs + (s.at(t) + b) * hidden + u, after[0], real, here.thread);
      if (record && real) {
#pragma unroll
        for (int k = 0; k < (Cell::kSaved < kGates ? Cell::kSaved : kGates); ++k) {
          own[static_cast<size_t>(k) * hidden] = Multiplied<T>::of_float(saved[k]);
        }
        if (Of::kApart) io.products[(s.at(t) + b) * hidden + u] = Multiplied<T>::of_float(saved[3]);
        if (Of::kFields) io.fields[(s.at(t) + b) * hidden + u] = field[part];
      }
    }
  }
#pragma unroll
  for (int part = 0; part < slices; ++part) {
    const int b = first + part * kSlice + sample;
    if (Of::kField >= 0 && finishes && b < s.end)
      io.field_after[static_cast<size_t>(b) * hidden + u] = field[part];
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

template <class Cell, class T, int units, int slices, int kept>
__global__ void __launch_bounds__((kept > 0 ? 1 : kTeams) * kTeam, 1)
    backward(const Segment s, const Backward<T> io) {
  using Of = Kept<Cell>;
  constexpr int kGates = Cell::kGates;
  const Place here = place();
  const int hidden = s.hidden, width = kGates * hidden, u0 = here.x * units;
  const Thread me(here.thread);
  Weights<T, units, kept> weights;
  std::uint8_t* rest = shared_memory();
  if constexpr (kept > 0) {
    weights.keep(me, [&](int unit, int k) {
      union {
        uint4 vector;
        T numbers[16 / sizeof(T)];
      } found;
#pragma unroll
      for (int i = 0; i < 16 / static_cast<int>(sizeof(T)); ++i)
        found.numbers[i] = io.weights[static_cast<size_t>(k + i) * hidden + u0 + unit];
      return found.vector;
    });
  } else {
    weights.shared = rest;
    weights.stride = row_bytes(width, sizeof(T));
    constexpr int kVectors = units * static_cast<int>(sizeof(T)) / 16;
    for (int i = here.thread; i < width; i += here.threads) {
      union {
        uint4 vectors[kVectors];
        T numbers[units];
      } found;
#pragma unroll
      for (int k = 0; k < kVectors; ++k) {
        found.vectors[k] =
            reinterpret_cast<const uint4*>(io.weights + static_cast<size_t>(i) * hidden + u0)[k];
      }
#pragma unroll
      for (int unit = 0; unit < units; ++unit) {
        *reinterpret_cast<T*>(rest + unit * weights.stride + i * sizeof(T)) =
            Multiplied<T>::rounded(found.numbers[unit]);
      }
    }
    rest += units * weights.stride;
  }
  sync_block();
  float* const parts = reinterpret_cast<float*>(rest) + me.team * 2 * kWarps * part_size(units);
  const int first = s.first + (here.y * s.teams + me.team) * slices * kSlice;
  const int unit = me.mine % units, sample = me.mine / units % kSlice, u = u0 + unit;
  const bool finishes = me.mine < units * kSlice;
  float carried[slices], of_field[slices];
#pragma unroll
  for (int part = 0; part < slices; ++part) {
    const int b = first + part * kSlice + sample;
    const bool real = finishes && b < s.end;
    carried[part] = real ? io.after_gradient[static_cast<size_t>(b) * hidden + u] : 0.F;
    of_field[part] =
        Of::kFields && real ? io.field_gradient[static_cast<size_t>(b) * hidden + u] : 0.F;
  }
  constexpr int kTogether = together(kept, 4);
  const auto samples = [&](int t, int part) {
    return Samples<T>(io.sums_gradient + s.at(t + 1) * width, width, first + part * kSlice, s, me);
  };
  uint4 ahead[2 * kTogether];
  bool looked = false;
  const int live = slices > 1 && first + kSlice >= s.end ? 1 : slices;
  int turn = 0;
  for (int t = s.steps - 1; t >= -1 && first < s.end; --t) {
#pragma unroll
    for (int part = 0; part < slices; ++part) {
      if (part >= live) continue;
      const int b = first + part * kSlice + sample;
      const bool real = finishes && b < s.end, uses = real && t >= 0;
      float before[2] = {}, after[2] = {}, saved[4] = {}, adjoint[2] = {0, of_field[part]},
            of_sums[4];
      float output = carried[part];
      const size_t own = (s.at(t) + b) * width + u;
      if (uses) {
#pragma unroll
        for (int k = 0; k < (Cell::kSaved < kGates ? Cell::kSaved : kGates); ++k) {
          saved[k] = Multiplied<T>::to_float(io.gates[own + static_cast<size_t>(k) * hidden]);
        }
        const size_t now = (s.at(t) + b) * hidden + u, last = static_cast<size_t>(b) * hidden + u;
        if (Of::kApart) {
          saved[3] = Multiplied<T>::to_float(io.products[now]);
          before[0] = Multiplied<T>::to_float(t == 0 ? io.before[last]
                                                     : io.outputs[(s.at(t - 1) + b) * hidden + u]);
        } else if (Of::kFields) {
          after[1] = io.fields[now];
          before[1] = t == 0 ? io.field_before[last] : io.fields[(s.at(t - 1) + b) * hidden + u];
        } else {
          after[0] = Multiplied<T>::to_float(io.outputs[now]);
        }
        if (io.outputs_gradient != nullptr)
          output += Multiplied<T>::to_float(io.outputs_gradient[now]);
      }
      if (t < s.steps - 1) {
        Sums<units> sums;
        const bool came = add_product<T, units, kept, kTogether>(sums, weights, samples(t, part),
                                                                 ahead, looked, s, me, false);
        float* const both = parts + turn * kWarps * part_size(units);
        turn ^= 1;  // those before may still be read
        put_parts<units>(both + me.warp * part_size(units), sums, me);
        if (any_of_team(me.team, !came)) {
          if (me.mine == 0) give_up(s.gave_up);
          spoil<slices>(io.before_gradient, s, hidden, first + sample, u, finishes);
          spoil<slices>(Of::kFields ? io.field_before_gradient : nullptr, s, hidden, first + sample,
                        u, finishes);
          return;
        }
        if (real) output += all_parts<units>(both, unit, sample);
      }
      if constexpr (kept > 0) {
        const int then = part + 1 < live ? part + 1 : 0, when = then == 0 ? t - 1 : t;
        looked = live > 1 && when >= -1 && when < s.steps - 1;
        if (looked) look_at(ahead, samples(when, then), me.warp);
      }
      if (t < 0) {
        if (real) io.before_gradient[static_cast<size_t>(b) * hidden + u] = output;
        if (Of::kFields && real)
          io.field_before_gradient[static_cast<size_t>(b) * hidden + u] = of_field[part];
        continue;
      }
      UnitBackward<float> unit_backward{before,  after,  saved,   0,       0,
                                        nullptr, output, adjoint, of_sums, nullptr};
      Cell::backward(unit_backward, Constants<float>());
      carried[part] = unit_backward.output;
      of_field[part] = adjoint[1];
#pragma unroll
      for (int k = 0; k < kGates; ++k) {
        const bool apart = Of::kApart && k == kGates - 1;
        const size_t at = own + static_cast<size_t>(k) * hidden;
        tell(io.sums_gradient + at, of_sums[apart ? Cell::kSums - 1 : k], real, here.thread);
        if (Of::kApart && real) io.inputs_gradient[at] = Multiplied<T>::of_float(of_sums[k]);
      }
    }
  }
}

}  // namespace ebb::gated