// SPDX-License-Identifier: Apache-2.0
// What gated_spread.cuh declares, for one type of numbers: each has a file of its own, so that they are compiled side by side.
#pragma once

#include <algorithm>
#include <array>
#include <type_traits>

#include "ebb/cell/gated_numbers.cuh"

#include "ebb/cell/gated_exact.cuh"
#include "ebb/cell/gated_kernels.cuh"
#include "ebb/cell/gated_recall.cuh"
#include "ebb/cell/gated_spread.cuh"
#include "ebb/device/cuda_call.cuh"

namespace ebb::gated {

// Weights are kept in registers by kernels for these.
template <class Cell, class T>
constexpr bool kept_in_registers(int kept) {
  return Cell::kGates > 1 && sizeof(T) == 2 && kept >= 1 && kept <= 4;
}

// The fewest units for which all samples run at a time: more of them in a block are more to multiply in one go.
template <class Cell, class T>
Spread spread_in_registers(const GatedShape& shape, const Gpu& gpu, int kept) {
  const int hidden = static_cast<int>(shape.hidden), batch = static_cast<int>(shape.batch);
  Spread last{};
  for (const int units : {16, 32}) {
    const int across = hidden / units, groups = gpu.processors / across;
    const int most = std::max(forward_shared<Cell, T>(units, hidden, 1, kept),
                              backward_shared<Cell, T>(units, hidden, 1, kept));
    if (groups == 0 || most > gpu.shared) continue;
    last = {units, 1, 1, kept, std::min(batch, groups * kSlice)};
    if (last.batch == batch) break;
  }
  return last;
}

// units is 0 where nothing fits.
template <class Cell, class T>
Spread spread(const GatedShape& shape, const Gpu& gpu) {
  const int hidden = static_cast<int>(shape.hidden), batch = static_cast<int>(shape.batch);
  const int chunks = hidden * static_cast<int>(sizeof(T)) / 64,
            kept = chunks % kWarps == 0 ? chunks / kWarps : 0;
  if (gpu.keeps && kept_in_registers<Cell, T>(kept)) {
    const Spread found = spread_in_registers<Cell, T>(shape, gpu, kept);
    if (found.units > 0) return found;
  }
  for (const int units : {16, 8}) {
    if (units == 8 && sizeof(T) < 4) break;  // more blocks than there are processors
    const int across = (hidden + units - 1) / units;
    Spread last{};
    for (const auto& [teams, slices] :
         {std::array{1, 1}, std::array{2, 1}, std::array{1, 2}, std::array{2, 2}}) {
      const int most = std::max(forward_shared<Cell, T>(units, hidden, teams, 0),
                                backward_shared<Cell, T>(units, hidden, teams, 0));
      if (most > gpu.shared || across > gpu.processors) continue;
      const int each = teams * slices * kSlice, groups = gpu.processors / across;
      last = {units, slices, teams, 0, std::min(batch, groups * each)};
      if (groups * each >= batch) break;
    }
    if (last.units > 0) return last;
  }
  return {};
}

inline Segment segment_of(const GatedShape& shape) {
  Segment segment;
  segment.steps = static_cast<int>(shape.steps);
  segment.batch = static_cast<int>(shape.batch);
  segment.hidden = static_cast<int>(shape.hidden);
  segment.backwards = shape.backwards;
  return segment;
}

// The kernel is given the segment and then what is given here.
template <class Kernel, class... Given>
void launch(const GatedShape& shape, const Spread& how, int shared, Kernel kernel, const Host& host,
            Given... given) {
  Segment segment = segment_of(shape);
  segment.teams = how.teams;
  segment.patience = host.patience;
  segment.gave_up = host.gave_up;
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared),
             "cudaFuncSetAttribute");
  const int each = how.teams * how.slices * kSlice;
  std::array<void*, 1 + sizeof...(given)> arguments = {&segment, &given...};
  for (; segment.first < segment.batch; segment.first = segment.end) {
    segment.end = std::min(segment.batch, segment.first + how.batch);
    const dim3 grid((segment.hidden + how.units - 1) / how.units,
                    (segment.end - segment.first + each - 1) / each);
    check_cuda(
        cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(kernel), grid,
                                    dim3(how.teams * kTeam), arguments.data(), shared, host.stream),
        "cudaLaunchCooperativeKernel");
  }
}

template <int kept, class F>
void with_registers(const Spread& how, const F& f) {
  return how.units == 16 ? f.template operator()<16, 1, kept>()
                         : f.template operator()<32, 1, kept>();
}

// Calls f.template operator()<units, slices, kept>().
template <class Cell, class T, class F>
void with_constants(const Spread& how, const F& f) {
  if constexpr (kept_in_registers<Cell, T>(1)) {
    if (how.kept == 1) return with_registers<1>(how, f);
    if (how.kept == 2) return with_registers<2>(how, f);
    if (how.kept == 3) return with_registers<3>(how, f);
    if (how.kept == 4) return with_registers<4>(how, f);
  }
  if constexpr (sizeof(T) == 4) {
    if (how.units == 8)
      return how.slices == 1 ? f.template operator()<8, 1, 0>() : f.template operator()<8, 2, 0>();
  }
  return how.slices == 1 ? f.template operator()<16, 1, 0>() : f.template operator()<16, 2, 0>();
}

template <class Cell, class T>
void run_forward(const GatedShape& shape, const Spread& how, const GatedForward& g, bool record,
                 const Host& host) {
  ForwardOf<Cell, T> io{};
  static_cast<Forward<T>&>(io) = {static_cast<const T*>(g.weights),
                                  static_cast<const T*>(g.bias),
                                  static_cast<T*>(g.sums),
                                  static_cast<const T*>(g.before),
                                  g.field_before,
                                  static_cast<T*>(g.outputs),
                                  g.field_after,
                                  g.fields,
                                  static_cast<T*>(g.products)};
  if constexpr (Kept<Cell>::kHeard) io.thresholds = g.thresholds;
  const std::size_t numbers = static_cast<std::size_t>(shape.steps) * shape.batch * shape.hidden;
  check_cuda(cudaMemsetAsync(g.outputs, 0xFF, numbers * sizeof(T), host.stream), "cudaMemsetAsync");
  const int shared =
      forward_shared<Cell, T>(how.units, static_cast<int>(shape.hidden), how.teams, how.kept);
  with_constants<Cell, T>(how, [&]<int units, int slices, int kept>() {
    if (record) {
      launch(shape, how, shared, forward<Cell, T, units, slices, kept, true>, host, io);
    } else {
      launch(shape, how, shared, forward<Cell, T, units, slices, kept, false>, host, io);
    }
  });
}

template <class Cell, class T>
void run_backward(const GatedShape& shape, const Spread& how, const GatedBackward& g,
                  const Host& host) {
  BackwardOf<Cell, T> io{};
  static_cast<Backward<T>&>(io) = {static_cast<const T*>(g.weights),
                                   static_cast<const T*>(g.gates),
                                   g.fields,
                                   static_cast<const T*>(g.products),
                                   static_cast<const T*>(g.outputs),
                                   static_cast<const T*>(g.before),
                                   g.field_before,
                                   static_cast<const T*>(g.outputs_gradient),
                                   g.after_gradient,
                                   g.field_gradient,
                                   static_cast<T*>(g.sums_gradient),
                                   static_cast<T*>(g.inputs_gradient),
                                   g.before_gradient,
                                   g.field_before_gradient};
  if constexpr (Kept<Cell>::kHeard) {
    io.thresholds = g.thresholds;
    io.thresholds_gradient = g.thresholds_gradient;
    io.surrogate = g.surrogate;
    io.sharpness = g.sharpness;
  }
  const std::size_t numbers =
      static_cast<std::size_t>(shape.steps) * shape.batch * shape.hidden * Cell::kGates;
  check_cuda(cudaMemsetAsync(g.sums_gradient, 0xFF, numbers * sizeof(T), host.stream),
             "cudaMemsetAsync");
  const int shared =
      backward_shared<Cell, T>(how.units, static_cast<int>(shape.hidden), how.teams, how.kept);
  with_constants<Cell, T>(how, [&]<int units, int slices, int kept>() {
    launch(shape, how, shared, backward<Cell, T, units, slices, kept * Cell::kGates>, host, io);
  });
}

template <class Cell, class T>
void run_recall(const GatedShape& shape, const GatedRecall& g, const Host& host) {
  if constexpr (Cell::kSaved > 0 && !Kept<Cell>::kHeard) {
    const Segment segment = segment_of(shape);
    const Recall<T> io{static_cast<T*>(g.sums), static_cast<const T*>(g.products), g.field_before,
                       g.fields};
    const auto blocks = static_cast<unsigned>(recall_blocks<Cell>(segment));
    recall<Cell, T><<<blocks, kRecallThreads, 0, host.stream>>>(segment, io);
    check_cuda(cudaGetLastError(), "recall");
  }
}

template <class F>
auto with_cell(GatedCell cell, const F& f) {
  if (cell == GatedCell::lstm) return f.template operator()<LstmMath>();
  if (cell == GatedCell::gru) return f.template operator()<GruMath>();
  if (cell == GatedCell::egru) return f.template operator()<EgruMath>();
  if (cell == GatedCell::rnn_tanh) return f.template operator()<RnnMath<false>>();
  return f.template operator()<RnnMath<true>>();
}

template <class T>
Spread OfNumber<T>::spread(const GatedShape& shape, const Gpu& gpu) {
  return with_cell(shape.cell, [&]<class Cell>() { return gated::spread<Cell, T>(shape, gpu); });
}

template <class T>
void OfNumber<T>::forward(const GatedShape& shape, const Spread& how, const GatedForward& given,
                          bool record, const Host& host) {
  with_cell(shape.cell,
            [&]<class Cell>() { run_forward<Cell, T>(shape, how, given, record, host); });
}

template <class T>
void OfNumber<T>::recall(const GatedShape& shape, const GatedRecall& given, const Host& host) {
  with_cell(shape.cell, [&]<class Cell>() { run_recall<Cell, T>(shape, given, host); });
}

template <class T>
void OfNumber<T>::backward(const GatedShape& shape, const Spread& how, const GatedBackward& given,
                           const Host& host) {
  with_cell(shape.cell, [&]<class Cell>() { run_backward<Cell, T>(shape, how, given, host); });
}

}  // namespace ebb::gated
