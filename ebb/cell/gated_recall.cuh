// SPDX-License-Identifier: Apache-2.0
// What a segment would have recorded, from sums that are all there: no time step waits for another but for the field of an lstm, which
// goes from step to step within a thread. A thread has two neighbouring units of one sample. Not for an egru, which reads
// what was heard in the step before.
//
// To be included after gated_kernels.cuh.
#pragma once

namespace ebb::gated {

constexpr int kRecallThreads = 128;
// Time steps whose sums are called for together. Without a field they are all that a thread has.
template <class Cell>
constexpr int kRecallSteps = Kept<Cell>::kFields ? 8 : 4;

template <class T>
struct Recall {
  T* sums;
  const T* products;
  const float* field_before;
  float* fields;
};

template <class Number>
struct alignas(2 * sizeof(Number)) Two {
  Number of[2];
};

template <class Number>
__device__ __forceinline__ Two<Number>& two_at(Number* numbers, size_t at) {
  return *reinterpret_cast<Two<Number>*>(numbers + at);
}
template <class Number>
__device__ __forceinline__ const Two<Number>& two_at(const Number* numbers, size_t at) {
  return *reinterpret_cast<const Two<Number>*>(numbers + at);
}

// Blocks that share the samples and units of one time step.
__host__ __device__ inline size_t recall_across(const Segment& s) {
  const size_t threads = static_cast<size_t>(s.batch) * s.hidden / 2;
  return (threads + kRecallThreads - 1) / kRecallThreads;
}
template <class Cell>
size_t recall_blocks(const Segment& s) {
  constexpr int kSteps = kRecallSteps<Cell>;
  return recall_across(s) * (Kept<Cell>::kFields ? 1 : (s.steps + kSteps - 1) / kSteps);
}

template <class Cell, class T>
__global__ void __launch_bounds__(kRecallThreads) recall(const Segment s, const Recall<T> io) {
  using Of = Kept<Cell>;
  constexpr int kGates = Cell::kGates, kSteps = kRecallSteps<Cell>;
  const Place here = place();
  const size_t hidden = s.hidden, across = recall_across(s);
  const size_t own = 2 * (here.x % across * kRecallThreads + here.thread);
  if (own >= s.batch * hidden) return;
  const size_t b = own / hidden, u = own % hidden;
  Two<float> field{};
  if (Of::kFields) field = two_at(io.field_before, own);
  const int first = static_cast<int>(here.x / across) * kSteps;
  const int end = Of::kFields ? s.steps : min(first + kSteps, s.steps);
  for (int start = first; start < end; start += kSteps) {
    Two<T> sums[kSteps][kGates], products[kSteps];
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      if (start + i >= end) break;
      const size_t row = s.at(start + i) + b;
#pragma unroll
      for (int k = 0; k < kGates; ++k)
        sums[i][k] = two_at(io.sums, (row * kGates + k) * hidden + u);
      if (Of::kApart) products[i] = two_at(io.products, row * hidden + u);
    }
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      if (start + i >= end) break;
      const size_t row = s.at(start + i) + b;
      Two<T> gates[kGates];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float added[Cell::kSums], before[2] = {0, field.of[j]}, after[2], saved[4];
#pragma unroll
        for (int k = 0; k < kGates; ++k) added[k] = Multiplied<T>::to_float(sums[i][k].of[j]);
        if (Of::kApart) added[Cell::kSums - 1] = Multiplied<T>::to_float(products[i].of[j]);
        UnitForward<float> unit{added, before, 0, nullptr, after, saved, 0};
        Cell::forward(unit, Constants<float>());
        if (Of::kFields) field.of[j] = after[1];
#pragma unroll
        for (int k = 0; k < kGates; ++k) gates[k].of[j] = Multiplied<T>::of_float(saved[k]);
      }
#pragma unroll
      for (int k = 0; k < kGates; ++k) two_at(io.sums, (row * kGates + k) * hidden + u) = gates[k];
      if (Of::kFields) two_at(io.fields, row * hidden + u) = field;
    }
  }
}

}  // namespace ebb::gated
