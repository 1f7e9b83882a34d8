// SPDX-License-Identifier: Apache-2.0
#include "ebb/cell/device_stack.h"

#include <algorithm>
#include <utility>

#include "ebb/core/at.h"
#include "ebb/device/cuda_arrays.h"

namespace ebb {

DeviceStack::DeviceStack(Layers layers) : layers_(std::move(layers)) {
  for (const auto& own : layers_) {
    const DeviceLayer& layer = *own;
    places_.push_back({parameter_size_, state_size_, prepared_bytes_, sums_bytes_, state_bytes_,
                       adjoint_bytes_, tape_bytes_});
    parameter_size_ += layer.parameter_size();
    state_size_ += layer.fields() * layer.sizes().batch * layer.sizes().hidden;
    prepared_bytes_ += layer.prepared_bytes();
    sums_bytes_ += layer.sums_bytes();
    state_bytes_ += layer.state_bytes();
    adjoint_bytes_ += layer.adjoint_bytes();
    tape_bytes_ += layer.tape_bytes();
    record_bytes_ = std::max(record_bytes_, layer.record_bytes());
  }
  scratch_bytes_ = std::max(forward_scratch(nullptr).bytes, reverse_scratch(nullptr).bytes);
}

// A layer's outputs lie a row behind the start, as they do in a tape: their address is then a multiple of the same numbers wherever
// they are, and cuBLAS has no reason to multiply them otherwise.
DeviceStack::Between DeviceStack::forward_scratch(std::byte* memory) const {
  Carver carver(memory);
  Between found{};
  Bytes rows = 0, own = 0;
  for (const auto& layer : layers_) {
    const DeviceSizes& o = layer->sizes();
    rows = std::max(rows, (o.chunk + 1) * o.batch * o.hidden * layer->output_bytes());
    own = std::max(own, layer->forward_bytes());
  }
  for (std::size_t k = 0; k < std::min<std::size_t>(2, layers_.size()); ++k)
    found.rows[k] = take_array(carver, rows);
  found.own = take_array(carver, own);
  found.bytes = carver.used();
  return found;
}

DeviceStack::Between DeviceStack::reverse_scratch(std::byte* memory) const {
  Carver carver(memory);
  Between found{};
  Bytes rows = 0, own = 0;
  for (std::size_t k = 0; k < layers_.size(); ++k) {
    const DeviceSizes& o = layers_[k]->sizes();
    if (k > 0) rows = std::max(rows, o.chunk * o.batch * o.inputs * layers_[k]->number_bytes());
    own = std::max(own, layers_[k]->reverse_bytes());
  }
  for (std::size_t k = 0; k < std::min<std::size_t>(2, layers_.size() - 1); ++k)
    found.rows[k] = take_array(carver, rows);
  found.own = take_array(carver, own);
  found.bytes = carver.used();
  return found;
}

void DeviceStack::begin(std::byte* prepared, void* stream) const {
  for (std::size_t k = 0; k < layers_.size(); ++k)
    layers_[k]->begin(prepared + places_[k].prepared, stream);
}

void DeviceStack::prepare(const float* parameters, std::byte* prepared, void* stream) const {
  for (std::size_t k = 0; k < layers_.size(); ++k)
    layers_[k]->prepare(parameters + places_[k].parameters, prepared + places_[k].prepared, stream);
}

void DeviceStack::load(const float* given, std::byte* state, void* stream) const {
  for (std::size_t k = 0; k < layers_.size(); ++k) {
    layers_[k]->load(given == nullptr ? nullptr : given + places_[k].state_numbers,
                     state + places_[k].state, stream);
  }
}

void DeviceStack::store(const std::byte* state, float* to, void* stream) const {
  for (std::size_t k = 0; k < layers_.size(); ++k)
    layers_[k]->store(state + places_[k].state, to + places_[k].state_numbers, stream);
}

void DeviceStack::load_adjoint(const float* given, std::byte* adjoint, void* stream) const {
  for (std::size_t k = 0; k < layers_.size(); ++k) {
    layers_[k]->load_adjoint(given == nullptr ? nullptr : given + places_[k].state_numbers,
                             adjoint + places_[k].adjoint, stream);
  }
}

void DeviceStack::store_adjoint(const std::byte* adjoint, float* to, void* stream) const {
  for (std::size_t k = 0; k < layers_.size(); ++k)
    layers_[k]->store_adjoint(adjoint + places_[k].adjoint, to + places_[k].state_numbers, stream);
}

void DeviceStack::advance(const DeviceWork& work, const std::byte* prepared, std::int64_t steps,
                          const void* x, const std::byte* before, std::byte* after, void* y,
                          std::byte* scratch) const {
  const Between between = forward_scratch(scratch);
  for (std::size_t k = 0; k < layers_.size(); ++k) {
    const DeviceLayer& layer = *layers_[k];
    const Places& at = places_[k];
    const DeviceSizes& o = layer.sizes();
    void* outputs = between.rows[k % 2] + o.batch * o.hidden * layer.output_bytes();
    if (k + 1 == layers_.size() && y != nullptr) outputs = y;
    layer.advance(work, prepared + at.prepared, steps, x, before + at.state, after + at.state,
                  outputs, between.own);
    x = outputs;
  }
}

void DeviceStack::record(const DeviceWork& work, const std::byte* prepared, std::int64_t steps,
                         const void* x, const std::byte* before, std::byte* tape, void* y,
                         std::byte* scratch) const {
  for (std::size_t k = 0; k < layers_.size(); ++k) {
    const Places& at = places_[k];
    x = layers_[k]->record(work, prepared + at.prepared, steps, x, before + at.state,
                           tape + at.tape, scratch);
  }
  if (y == nullptr) return;
  const DeviceSizes& top = layers_.back()->sizes();
  cuda_copy(y, x, steps * top.batch * top.hidden * output_bytes(), work.stream);
}

void DeviceStack::state_of_tape(const std::byte* tape, std::int64_t steps, std::byte* state,
                                void* stream) const {
  for (std::size_t k = 0; k < layers_.size(); ++k) {
    layers_[k]->state_of_tape(tape + places_[k].tape, steps, state + places_[k].state, stream);
  }
}

void DeviceStack::reverse(const DeviceWork& work, const std::byte* prepared, const Reversed& given,
                          std::byte* scratch) const {
  const Between between = reverse_scratch(scratch);
  const void* of_outputs = given.of_y;
  for (std::size_t k = layers_.size(); k-- > 0;) {
    const Places& at = places_[k];
    DeviceLayer::Reversed own;
    own.steps = given.steps;
    own.x = k == 0 ? given.x : layers_[k - 1]->outputs_of_tape(given.tape + places_[k - 1].tape);
    own.tape = given.tape + at.tape;
    own.outputs_gradient = of_outputs;
    own.of_after = given.of_after + at.adjoint;
    own.of_before = given.of_before + at.adjoint;
    own.of_x = k == 0 ? given.of_x : between.rows[(k - 1) % 2];
    own.gradient = given.gradient + at.parameters;
    own.sums = given.sums + at.sums;
    layers_[k]->reverse(work, prepared + at.prepared, own, between.own);
    of_outputs = own.of_x;
  }
}

void DeviceStack::finish(const std::byte* prepared, const std::byte* sums, float* gradient,
                         void* stream) const {
  for (std::size_t k = 0; k < layers_.size(); ++k) {
    const Places& at = places_[k];
    layers_[k]->finish(prepared + at.prepared, sums + at.sums, gradient + at.parameters, stream);
  }
}

}  // namespace ebb
