// SPDX-License-Identifier: Apache-2.0
// The kernels behind spiking.h. Blocks, teams and slices are those of gated_kernels.cuh; what blocks hand to each other are spikes, and
// gradients of sums on the way back.
//
// To be included after gated_kernels.cuh and gated_recall.cuh.
#pragma once

#include "ebb/cell/adlif_math.h"
#include "ebb/cell/alif_math.h"
#include "ebb/cell/lif_math.h"

namespace ebb::gated {

// The membrane, or the nearest one that fires, or does not, as the spike says.
__device__ __forceinline__ float on_the_side_of(float spike, float membrane, float threshold) {
  if (spike != 0) return membrane < threshold ? threshold : membrane;
  return membrane >= threshold ? nextafterf(threshold, -1e30F) : membrane;
}

// What is kept of a time step, and what follows from it.
template <class Cell>
struct Remains;

// The membrane before the reset.
template <>
struct Remains<LifMath<false>> {
  static constexpr int kKept = 1;

  static __device__ __forceinline__ void keep(float* kept, float* after, const float* saved,
                                              float spike, const float* parameters,
                                              const Constants<float>& c) {
    kept[0] = on_the_side_of(spike, saved[0], parameters[0]);
    fields(after, kept, spike, parameters, c);
  }
  static __device__ __forceinline__ void fields(float* fields, const float* kept, float spike,
                                                const float* parameters,
                                                const Constants<float>& c) {
    fields[0] = kept[0] - spike * (c.hard * (kept[0] - c.rest) + (1.0F - c.hard) * parameters[0]);
  }
};

// The fields themselves, of cells whose threshold Cell::distance knows.
template <class Cell>
struct RemainsOfFields {
  static constexpr int kKept = 2;

  static __device__ __forceinline__ void keep(float* kept, float* after, const float*, float spike,
                                              const float* parameters, const Constants<float>&) {
    const float zero[2] = {0.F, after[1]};
    after[0] =
        on_the_side_of(spike, after[0], -Cell::template distance<float>(nullptr, zero, parameters));
    kept[0] = after[0];
    kept[1] = after[1];
  }
  static __device__ __forceinline__ void fields(float* fields, const float* kept, float,
                                                const float*, const Constants<float>&) {
    fields[0] = kept[0];
    fields[1] = kept[1];
  }
};
template <>
struct Remains<AlifMath> : RemainsOfFields<AlifMath> {};
template <>
struct Remains<AdlifMath> : RemainsOfFields<AdlifMath> {};

// What all units of a layer have in common.
struct Neurons {
  Constants<float> constants;
  Surrogate surrogate = Surrogate::fast_sigmoid;
};

template <class Cell>
__device__ __forceinline__ void take_parameters(float (&to)[Cell::kParameters],
                                                const float* parameters, int hidden, int u) {
#pragma unroll
  for (int k = 0; k < Cell::kParameters; ++k)
    to[k] = parameters[static_cast<size_t>(k) * hidden + u];
}

template <class T>
struct NeuronForward {
  const T* weights;
  const float* parameters;
  const T* sums;
  const T* before;
  const float* fields_before;
  T* outputs;
  float* fields_after;
};

template <class Cell, class T, int units, int slices>
__global__ void __launch_bounds__(kTeams* kTeam, 1)
    neurons_forward(const Segment s, const Neurons n, const NeuronForward<T> io) {
  constexpr int kFields = Cell::kFields;
  const Place here = place();
  const int hidden = s.hidden, u0 = here.x * units;
  const Thread me(here.thread);
  Weights<T, units, 0> weights;
  std::uint8_t* const shared = shared_memory();
  take_weights(weights, shared, hidden, me, RowsOfUnits<T, units>{io.weights, hidden, u0, here});
  sync_block();
  std::uint8_t* const rest = shared + rows_shared(units, 0) * weights.stride;
  float* const parts = reinterpret_cast<float*>(rest) + me.team * kWarps * part_size(units);
  const int first = s.first + (here.y * s.teams + me.team) * slices * kSlice;
  const Own<units> mine(me);
  constexpr int kCount = Own<units>::kCount;
  const int u = u0 + mine.unit;
  const size_t state = static_cast<size_t>(s.batch) * hidden;
  float fields[slices * kCount][kFields], spikes[slices * kCount], parameters[Cell::kParameters];
  take_parameters<Cell>(parameters, io.parameters, hidden, u);
#pragma unroll
  for (int i = 0; i < slices * kCount; ++i) {
    const int b = first + place_of<units>(i, mine);
    const bool real = mine.finishes && b < s.end;
    const size_t at = static_cast<size_t>(b) * hidden + u;
#pragma unroll
    for (int k = 0; k < kFields; ++k) fields[i][k] = real ? io.fields_before[k * state + at] : 0.F;
    spikes[i] = real ? Multiplied<T>::to_float(io.before[at]) : 0.F;
  }
  uint4 ahead[2 * together(0)];
  const int live = slices > 1 && first + kSlice >= s.end ? 1 : slices;
  for (int t = 0; t < s.steps && first < s.end; ++t) {
#pragma unroll
    for (int part = 0; part < slices; ++part) {
      if (part >= live) continue;
      T given[kCount];  // converted later, since that waits for them
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const int b = first + place_of<units>(part * kCount + i, mine);
        const bool real = mine.finishes && b < s.end;
        given[i] = real ? io.sums[(s.at(t) + b) * hidden + u] : Multiplied<T>::of_float(0.F);
        if (real && begins<T>(mine.unit) && t + kAhead < s.steps)
          prefetch(io.sums + (s.at(t + kAhead) + b) * hidden + u);
      }
      const T* const all = t == 0 ? io.before : io.outputs + s.at(t - 1) * hidden;
      const Samples<T, true> samples(all, hidden, first + part * kSlice, s, me);
      const bool came = put_product(parts + me.warp * part_size(units), weights, samples, ahead,
                                    false, s, me, t == 0, [&] {
                                      // All have read the parts before these.
                                      if (t > 0 || part > 0) sync_team(me.team);
                                    });
      if (any_of_team(me.team, !came)) {
        if (me.mine == 0) give_up(s.gave_up);
        spoil<units, slices>(io.fields_after, s, hidden, first, u, mine);
        return;
      }
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const int own = part * kCount + i, inside = mine.sample + i * Own<units>::kStep,
                  b = first + part * kSlice + inside;
        const float sum =
            Multiplied<T>::to_float(given[i]) + all_parts<units>(parts, mine.unit, inside);
        float after[kFields], saved[1];
        UnitForward<float> unit{&sum, fields[own], spikes[own], parameters, after, saved, 0};
        Cell::forward(unit, n.constants);
#pragma unroll
        for (int k = 0; k < kFields; ++k) fields[own][k] = after[k];
        spikes[own] = unit.spike;
        tell(io.outputs + (s.at(t) + b) * hidden + u, unit.spike, mine.finishes && b < s.end,
             here.thread);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < slices * kCount; ++i) {
    const int b = first + place_of<units>(i, mine);
    if (!mine.finishes || b >= s.end) continue;
#pragma unroll
    for (int k = 0; k < kFields; ++k)
      io.fields_after[k * state + static_cast<size_t>(b) * hidden + u] = fields[i][k];
  }
}

template <class T>
struct NeuronRecall {
  const float* parameters;
  const T* sums;
  const T* before;
  const T* outputs;
  const float* fields_before;
  float* kept;
};

// A thread has one unit of one sample. Spikes are those that there were: where sums are rounded otherwise than on the way, the membrane
// is moved to the side of its threshold that they tell.
template <class Cell, class T>
__global__ void __launch_bounds__(kRecallThreads)
    neurons_recall(const Segment s, const Neurons n, const NeuronRecall<T> io) {
  constexpr int kFields = Cell::kFields, kKept = Remains<Cell>::kKept, kSteps = 8;
  const Place here = place();
  const size_t hidden = s.hidden, state = s.batch * hidden, all = s.steps * state;
  const size_t own = static_cast<size_t>(here.x) * kRecallThreads + here.thread;
  if (own >= state) return;
  const size_t b = own / hidden, u = own % hidden;
  float parameters[Cell::kParameters], fields[kFields];
  take_parameters<Cell>(parameters, io.parameters, s.hidden, static_cast<int>(u));
#pragma unroll
  for (int k = 0; k < kFields; ++k) fields[k] = io.fields_before[k * state + own];
  float spike = Multiplied<T>::to_float(io.before[own]);
  for (int start = 0; start < s.steps; start += kSteps) {
    T sums[kSteps], outputs[kSteps];
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      if (start + i >= s.steps) break;
      const size_t at = (s.at(start + i) + b) * hidden + u;
      sums[i] = io.sums[at];
      outputs[i] = io.outputs[at];
    }
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      if (start + i >= s.steps) break;
      const float sum = Multiplied<T>::to_float(sums[i]);
      float after[kFields], saved[1], kept[kKept];
      UnitForward<float> unit{&sum, fields, spike, parameters, after, saved, 0};
      Cell::forward(unit, n.constants);
      spike = Multiplied<T>::to_float(outputs[i]);
      Remains<Cell>::keep(kept, after, saved, spike, parameters, n.constants);
#pragma unroll
      for (int k = 0; k < kFields; ++k) fields[k] = after[k];
      const size_t at = (s.at(start + i) + b) * hidden + u;
#pragma unroll
      for (int k = 0; k < kKept; ++k) io.kept[k * all + at] = kept[k];
    }
  }
}

template <class T>
struct NeuronBackward {
  const T* weights;
  const float* parameters;
  const T* sums;
  float* kept;
  const T* outputs;
  const T* before;
  const float* fields_before;
  const T* outputs_gradient;
  const float* after_gradient;
  const float* fields_gradient;
  T* sums_gradient;
  float* before_gradient;
  float* fields_before_gradient;
  float* parameters_gradient;
};

template <class Cell, class T, int units, int slices>
__global__ void __launch_bounds__(kTeams* kTeam, 1)
    neurons_backward(const Segment s, const Neurons n, const NeuronBackward<T> io) {
  constexpr int kFields = Cell::kFields, kKept = Remains<Cell>::kKept;
  const Place here = place();
  const int hidden = s.hidden, u0 = here.x * units;
  const Thread me(here.thread);
  Weights<T, units, 0> weights;
  std::uint8_t* const shared = shared_memory();
  take_weights(weights, shared, hidden, me,
               ColumnsOfUnits<T, units>{io.weights, hidden, hidden, u0, here});
  sync_block();
  std::uint8_t* const rest = shared + rows_shared(units, 0) * weights.stride;
  float* const parts = reinterpret_cast<float*>(rest) + me.team * 2 * kWarps * part_size(units);
  const int first = s.first + (here.y * s.teams + me.team) * slices * kSlice;
  const Own<units> mine(me);
  constexpr int kCount = Own<units>::kCount;
  const int u = u0 + mine.unit;
  const size_t state = static_cast<size_t>(s.batch) * hidden, all = s.steps * state;
  float carried[slices * kCount], adjoint[slices * kCount][kFields];
  float of_parameters[slices * kCount][Cell::kParameters] = {}, parameters[Cell::kParameters];
  take_parameters<Cell>(parameters, io.parameters, hidden, u);
#pragma unroll
  for (int i = 0; i < slices * kCount; ++i) {
    const int b = first + place_of<units>(i, mine);
    const bool real = mine.finishes && b < s.end;
    const size_t at = static_cast<size_t>(b) * hidden + u;
    carried[i] = real ? io.after_gradient[at] : 0.F;
#pragma unroll
    for (int k = 0; k < kFields; ++k)
      adjoint[i][k] = real ? io.fields_gradient[k * state + at] : 0.F;
  }
  uint4 ahead[2 * together(0)];
  const int live = slices > 1 && first + kSlice >= s.end ? 1 : slices;
  int turn = 0;
  for (int t = s.steps - 1; t >= -1 && first < s.end; --t) {
#pragma unroll
    for (int part = 0; part < slices; ++part) {
      if (part >= live) continue;
      float now[kCount][kKept] = {}, last[kCount][kKept] = {}, spike[kCount] = {}, output[kCount];
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const int b = first + place_of<units>(part * kCount + i, mine);
        output[i] = carried[part * kCount + i];
        if (!mine.finishes || b >= s.end || t < 0) continue;
        const size_t at = (s.at(t) + b) * hidden + u, begin = static_cast<size_t>(b) * hidden + u;
        const size_t earlier = t == 0 ? begin : (s.at(t - 1) + b) * hidden + u;
#pragma unroll
        for (int k = 0; k < kKept; ++k) {
          now[i][k] = io.kept[k * all + at];
          if (t > 0) last[i][k] = io.kept[k * all + earlier];
        }
        spike[i] = Multiplied<T>::to_float((t == 0 ? io.before : io.outputs)[earlier]);
        if (io.outputs_gradient != nullptr)
          output[i] += Multiplied<T>::to_float(io.outputs_gradient[at]);
        if (t > kAhead) {
          const size_t then = (s.at(t - 1 - kAhead) + b) * hidden + u;
          if (begins<float>(mine.unit)) {
#pragma unroll
            for (int k = 0; k < kKept; ++k) prefetch(io.kept + k * all + then);
          }
          if (begins<T>(mine.unit)) {
            prefetch(io.outputs + then);
            if (io.outputs_gradient != nullptr) prefetch(io.outputs_gradient + then);
          }
        }
      }
      if (t < s.steps - 1) {
        float* const both = parts + turn * kWarps * part_size(units);
        turn ^= 1;  // those before may still be read
        const Samples<T, true> samples(io.sums_gradient + s.at(t + 1) * hidden, hidden,
                                       first + part * kSlice, s, me);
        const bool came = put_product(both + me.warp * part_size(units), weights, samples, ahead,
                                      false, s, me, false, [] {});
        if (any_of_team(me.team, !came)) {
          if (me.mine == 0) give_up(s.gave_up);
          spoil<units, slices>(io.before_gradient, s, hidden, first, u, mine);
          spoil<units, slices>(io.fields_before_gradient, s, hidden, first, u, mine);
          return;
        }
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
          if (mine.finishes)
            output[i] += all_parts<units>(both, mine.unit, mine.sample + i * Own<units>::kStep);
        }
      }
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const int own = part * kCount + i, b = first + place_of<units>(own, mine);
        const bool real = mine.finishes && b < s.end;
        const size_t begin = static_cast<size_t>(b) * hidden + u;
        if (t < 0) {
          if (!real) continue;
          io.before_gradient[begin] = output[i];
#pragma unroll
          for (int k = 0; k < kFields; ++k)
            io.fields_before_gradient[k * state + begin] = adjoint[own][k];
          continue;
        }
        float before[kFields], after[kFields], of_sum;
        if (t > 0) {
          Remains<Cell>::fields(before, last[i], spike[i], parameters, n.constants);
        } else {
#pragma unroll
          for (int k = 0; k < kFields; ++k)
            before[k] = real ? io.fields_before[k * state + begin] : 0.F;
        }
        // Of what is after a step its cell reads nothing that the spike changes.
        Remains<Cell>::fields(after, now[i], 0, parameters, n.constants);
        const float slope =
            slope_at(n.surrogate, Cell::distance(now[i], after, parameters), n.constants.sharpness);
        UnitBackward<float> unit{before,     after,     now[i],       spike[i], slope,
                                 parameters, output[i], adjoint[own], &of_sum,  of_parameters[own]};
        Cell::backward(unit, n.constants);
        carried[own] = unit.output;
        tell(io.sums_gradient + (s.at(t) + b) * hidden + u, of_sum, real, here.thread);
      }
    }
  }
  if (io.parameters_gradient == nullptr) return;
#pragma unroll
  for (int i = 0; i < slices * kCount; ++i) {
    const int b = first + place_of<units>(i, mine);
    if (!mine.finishes || b >= s.end) continue;
#pragma unroll
    for (int k = 0; k < Cell::kParameters; ++k) {
      io.parameters_gradient[k * state + static_cast<size_t>(b) * hidden + u] = of_parameters[i][k];
    }
  }
}

}  // namespace ebb::gated
