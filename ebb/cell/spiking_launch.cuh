// SPDX-License-Identifier: Apache-2.0
// What spiking_spread.cuh declares, for one type of numbers.
#pragma once

#include "ebb/cell/gated_launch.cuh"
#include "ebb/cell/spiking_kernels.cuh"
#include "ebb/cell/spiking_spread.cuh"
//
#include "ebb/cell/spiking_apart.cuh"

namespace ebb::gated {

inline GatedShape sizes_of(const SpikingShape& shape) {
  GatedShape sizes;
  sizes.number = shape.number;
  sizes.steps = shape.steps;
  sizes.batch = shape.batch;
  sizes.hidden = shape.hidden;
  return sizes;
}

inline Neurons neurons_of(const SpikingShape& shape) { return {shape.constants, shape.surrogate}; }

template <class F>
auto with_neuron(SpikingCell cell, const F& f) {
  if (cell == SpikingCell::lif) return f.template operator()<LifMath<false>>();
  if (cell == SpikingCell::alif) return f.template operator()<AlifMath>();
  return f.template operator()<AdlifMath>();
}

// Blocks of threads that have one unit of one sample each.
inline unsigned unit_blocks(const SpikingShape& shape) {
  return static_cast<unsigned>((shape.batch * shape.hidden + kRecallThreads - 1) / kRecallThreads);
}

// What blocks hand to each other announces itself.
template <class T>
void make_absent(void* numbers, const SpikingShape& shape, const Host& host) {
  const auto bytes = static_cast<std::size_t>(shape.steps * shape.batch * shape.hidden) * sizeof(T);
  check_cuda(cudaMemsetAsync(numbers, 0xFF, bytes, host.stream), "cudaMemsetAsync");
}

template <class T>
Spread OfSpikes<T>::spread(const SpikingShape& shape, const Gpu& gpu) {
  return with_neuron(shape.cell,
                     [&]<class Cell>() { return gated::spread<Cell, T>(sizes_of(shape), gpu); });
}

template <class T>
NeuronForward<T> of_forward(const SpikingForward& g) {
  return {static_cast<const T*>(g.weights),
          g.parameters,
          static_cast<const T*>(g.sums),
          static_cast<const T*>(g.before),
          g.fields_before,
          static_cast<T*>(g.outputs),
          g.fields_after};
}

template <class T>
NeuronBackward<T> of_backward(const SpikingBackward& g) {
  return {static_cast<const T*>(g.weights),
          g.parameters,
          static_cast<const T*>(g.sums),
          g.kept,
          static_cast<const T*>(g.outputs),
          static_cast<const T*>(g.before),
          g.fields_before,
          static_cast<const T*>(g.outputs_gradient),
          g.after_gradient,
          g.fields_gradient,
          static_cast<T*>(g.sums_gradient),
          g.before_gradient,
          g.fields_before_gradient,
          g.parameters_gradient};
}

template <class T>
void OfSpikes<T>::forward(const SpikingShape& shape, const Spread& how, const SpikingForward& g,
                          const Host& host) {
  const NeuronForward<T> io = of_forward<T>(g);
  make_absent<T>(g.outputs, shape, host);
  with_neuron(shape.cell, [&]<class Cell>() {
    const int shared =
        forward_shared<Cell, T>(how.units, static_cast<int>(shape.hidden), how.teams, 0);
    with_constants<Cell, T>(how, [&]<int units, int slices, int>() {
      launch(sizes_of(shape), how, shared, neurons_forward<Cell, T, units, slices>, host,
             neurons_of(shape), io);
    });
  });
}

template <class T>
void OfSpikes<T>::recall(const SpikingShape& shape, const SpikingRecall& g, const Host& host) {
  const NeuronRecall<T> io{g.parameters,
                           static_cast<const T*>(g.sums),
                           static_cast<const T*>(g.before),
                           static_cast<const T*>(g.outputs),
                           g.fields_before,
                           g.kept};
  with_neuron(shape.cell, [&]<class Cell>() {
    neurons_recall<Cell, T><<<unit_blocks(shape), kRecallThreads, 0, host.stream>>>(
        segment_of(sizes_of(shape)), neurons_of(shape), io);
    check_cuda(cudaGetLastError(), "neurons_recall");
  });
}

template <class T>
void OfSpikes<T>::backward(const SpikingShape& shape, const Spread& how, const SpikingBackward& g,
                           const Host& host) {
  const NeuronBackward<T> io = of_backward<T>(g);
  make_absent<T>(g.sums_gradient, shape, host);
  with_neuron(shape.cell, [&]<class Cell>() {
    const int shared =
        backward_shared<Cell, T>(how.units, static_cast<int>(shape.hidden), how.teams, 0);
    with_constants<Cell, T>(how, [&]<int units, int slices, int>() {
      launch(sizes_of(shape), how, shared, neurons_backward<Cell, T, units, slices>, host,
             neurons_of(shape), io);
    });
  });
}

template <class T>
void OfSpikes<T>::forward_apart(const SpikingShape& shape, const SpikingForward& g,
                                const Host& host) {
  with_neuron(shape.cell, [&]<class Cell>() {
    apart_forward<Cell, T><<<unit_blocks(shape), kRecallThreads, 0, host.stream>>>(
        segment_of(sizes_of(shape)), neurons_of(shape), of_forward<T>(g));
    check_cuda(cudaGetLastError(), "apart_forward");
  });
}

template <class T>
void OfSpikes<T>::backward_apart(const SpikingShape& shape, const SpikingBackward& g,
                                 const Host& host) {
  const NeuronBackward<T> io = of_backward<T>(g);
  with_neuron(shape.cell, [&]<class Cell>() {
    const auto kernel = io.parameters_gradient == nullptr ? apart_backward<Cell, T, false>
                                                          : apart_backward<Cell, T, true>;
    kernel<<<unit_blocks(shape), kRecallThreads, kApartShared, host.stream>>>(
        segment_of(sizes_of(shape)), neurons_of(shape), io);
    check_cuda(cudaGetLastError(), "apart_backward");
  });
}

}  // namespace ebb::gated
