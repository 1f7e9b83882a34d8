// SPDX-License-Identifier: Apache-2.0
// Spiking cells without recurrent weights: units are apart, and a thread has one of them, of one sample, over all time steps. Memory is
// what they wait for, so that they read every number once, or twice where a segment is longer than a stretch.
//
// To be included after spiking_kernels.cuh.
#pragma once

#include "ebb/cell/spiking.h"

namespace ebb::gated {

// Time steps of which a thread keeps membranes on the way back, and those whose numbers it calls for together.
template <class Cell>
constexpr int kStretch = kSpikingHeld / Remains<Cell>::kKept;
constexpr int kCalled = 8;

// One unit of one sample on its way through time.
template <class Cell, class T>
struct Traveller {
  static constexpr int kFields = Cell::kFields, kKept = Remains<Cell>::kKept;
  size_t own, state;
  float parameters[Cell::kParameters], fields[kFields], spike;
  float kept[kKept];  // of the last time step

  __device__ __forceinline__ Traveller(const Segment& s, const float* given)
      : state(static_cast<size_t>(s.batch) * s.hidden) {
    const Place here = place();
    own = static_cast<size_t>(here.x) * kRecallThreads + here.thread;
    if (exists())
      take_parameters<Cell>(parameters, given, s.hidden, static_cast<int>(own % s.hidden));
  }

  __device__ __forceinline__ bool exists() const { return own < state; }
  __device__ __forceinline__ size_t at(int t) const { return t * state + own; }
  __device__ __forceinline__ void begin(const float* from, float spike_before) {
#pragma unroll
    for (int k = 0; k < kFields; ++k) fields[k] = from[k * state + own];
    spike = spike_before;
  }
  __device__ __forceinline__ void write_fields(float* to) const {
#pragma unroll
    for (int k = 0; k < kFields; ++k) to[k * state + own] = fields[k];
  }
  __device__ __forceinline__ void step(T given, const Neurons& n) {
    const float sum = Multiplied<T>::to_float(given);
    float after[kFields], saved[1];
    UnitForward<float> unit{&sum, fields, spike, parameters, after, saved, 0};
    Cell::forward(unit, n.constants);
    spike = unit.spike;
    Remains<Cell>::keep(kept, after, saved, spike, parameters, n.constants);
#pragma unroll
    for (int k = 0; k < kFields; ++k) fields[k] = after[k];
  }
  // Time steps from `start` to before `end`; each(t) comes after each.
  template <class Each>
  __device__ __forceinline__ void go(const T* sums, int start, int end, const Neurons& n,
                                     const Each& each) {
    for (int first = start; first < end; first += kCalled) {
      T called[kCalled];
#pragma unroll
      for (int i = 0; i < kCalled; ++i)
        if (first + i < end) called[i] = sums[at(first + i)];
#pragma unroll
      for (int i = 0; i < kCalled; ++i) {
        if (first + i >= end) break;
        step(called[i], n);
        each(first + i);
      }
    }
  }
};

template <class Cell, class T>
__global__ void __launch_bounds__(kRecallThreads)
    apart_forward(const Segment s, const Neurons n, const NeuronForward<T> io) {
  Traveller<Cell, T> unit(s, io.parameters);
  if (!unit.exists()) return;
  unit.begin(io.fields_before, Multiplied<T>::to_float(io.before[unit.own]));
  unit.go(io.sums, 0, s.steps, n,
          [&](int t) { io.outputs[unit.at(t)] = Multiplied<T>::of_float(unit.spike); });
  unit.write_fields(io.fields_after);
}

// Bytes of shared memory on the way back.
constexpr int kApartShared = kRecallThreads * kSpikingHeld * static_cast<int>(sizeof(float));

// What a thread keeps of a stretch, among that of others.
template <class Cell>
struct Shelf {
  static constexpr int kKept = Remains<Cell>::kKept;
  float* own;

  explicit __device__ __forceinline__ Shelf(int thread)
      : own(reinterpret_cast<float*>(shared_memory()) + thread) {}
  __device__ __forceinline__ void put(int step, const float (&kept)[kKept]) const {
#pragma unroll
    for (int k = 0; k < kKept; ++k) own[(step * kKept + k) * kRecallThreads] = kept[k];
  }
  __device__ __forceinline__ void get(int step, float (&kept)[kKept]) const {
#pragma unroll
    for (int k = 0; k < kKept; ++k) kept[k] = own[(step * kKept + k) * kRecallThreads];
  }
};

// learns: gradients of parameters are wanted.
template <class Cell, class T, bool learns>
__global__ void __launch_bounds__(kRecallThreads, 8)
    apart_backward(const Segment s, const Neurons n, const NeuronBackward<T> io) {
  constexpr int kFields = Cell::kFields, kKept = Remains<Cell>::kKept, kSteps = kStretch<Cell>;
  Traveller<Cell, T> unit(s, io.parameters);
  if (!unit.exists()) return;
  const Shelf<Cell> shelf(place().thread);
  const size_t own = unit.own, each = kFields * unit.state;
  const int count = (s.steps - 1) / kSteps;  // stretches after the first
  unit.begin(io.fields_before, Multiplied<T>::to_float(io.before[own]));
  for (int k = 0; k < count; ++k) {
    unit.go(io.sums, k * kSteps, (k + 1) * kSteps, n, [](int) {});
    unit.write_fields(io.kept + k * each);
  }
  float carried = io.after_gradient[own], adjoint[kFields], of_parameters[Cell::kParameters] = {};
#pragma unroll
  for (int k = 0; k < kFields; ++k) adjoint[k] = io.fields_gradient[k * unit.state + own];
  for (int stretch = count; stretch >= 0; --stretch) {
    const int start = stretch * kSteps, steps = min(kSteps, s.steps - start);
    const T before = stretch == 0 ? io.before[own] : io.outputs[unit.at(start - 1)];
    const float first_spike = Multiplied<T>::to_float(before);
    unit.begin(stretch == 0 ? io.fields_before : io.kept + (stretch - 1) * each, first_spike);
    float first_fields[kFields], now[kKept], last[kKept];
    std::uint32_t spikes = 0;
#pragma unroll
    for (int k = 0; k < kFields; ++k) first_fields[k] = unit.fields[k];
    unit.go(io.sums, start, start + steps, n, [&](int t) {
      shelf.put(t - start, unit.kept);
      spikes |= unit.spike != 0 ? 1U << (t - start) : 0U;
    });
    shelf.get(steps - 1, now);
    for (int end = steps; end > 0; end -= kCalled) {
      T called[kCalled];
#pragma unroll
      for (int i = 0; i < kCalled; ++i) {
        if (io.outputs_gradient != nullptr && end - 1 - i >= 0)
          called[i] = io.outputs_gradient[unit.at(start + end - 1 - i)];
      }
#pragma unroll
      for (int i = 0; i < kCalled; ++i) {
        const int step = end - 1 - i;
        if (step < 0) break;
        const float output =
            carried + (io.outputs_gradient != nullptr ? Multiplied<T>::to_float(called[i]) : 0.F);
        float fields[kFields], after[kFields], of_sum, spike = first_spike;
        if (step > 0) {
          shelf.get(step - 1, last);
          spike = (spikes >> (step - 1) & 1) != 0 ? 1.F : 0.F;
          Remains<Cell>::fields(fields, last, spike, unit.parameters, n.constants);
        } else {
#pragma unroll
          for (int k = 0; k < kFields; ++k) fields[k] = first_fields[k];
        }
        Remains<Cell>::fields(after, now, 0, unit.parameters, n.constants);
        const float slope = slope_at(n.surrogate, Cell::distance(now, after, unit.parameters),
                                     n.constants.sharpness);
        UnitBackward<float> back{fields,          after,  now,     spike,   slope,
                                 unit.parameters, output, adjoint, &of_sum, of_parameters};
        Cell::backward(back, n.constants);
        carried = back.output;
        io.sums_gradient[unit.at(start + step)] = Multiplied<T>::of_float(of_sum);
#pragma unroll
        for (int k = 0; k < kKept; ++k) now[k] = last[k];
      }
    }
  }
  io.before_gradient[own] = carried;
#pragma unroll
  for (int k = 0; k < kFields; ++k) io.fields_before_gradient[k * unit.state + own] = adjoint[k];
  if constexpr (learns) {
#pragma unroll
    for (int k = 0; k < Cell::kParameters; ++k)
      io.parameters_gradient[k * unit.state + own] = of_parameters[k];
  }
}

}  // namespace ebb::gated
