// SPDX-License-Identifier: Apache-2.0
#include "ebb/cell/readout_layer.h"

#include "ebb/cell/leaky.h"
#include "ebb/device/cuda_arrays.h"

namespace ebb {

ReadoutLayer::Parameters ReadoutLayer::parameters() const {
  const std::int64_t outputs = options_.hidden;
  Parameters found{};
  found.bias = input_.size();
  found.tau = found.bias + (options_.bias ? outputs : 0);
  found.size = found.tau + (options_.leaky ? outputs : 0);
  return found;
}

ReadoutLayer::Prepared ReadoutLayer::prepared_at(std::byte* memory) const {
  Carver carver(memory);
  Prepared found{};
  found.w_ih = input_.take_prepared(carver);
  if (options_.bias) found.bias = take_floats(carver, options_.hidden);
  if (options_.leaky) found.decays = take_floats(carver, options_.hidden);
  found.ones = take_floats(carver, options_.chunk * options_.batch);
  found.bytes = carver.used();
  return found;
}

float* ReadoutLayer::sums_at(std::byte* memory, float* gradient) const {
  Carver carver(memory);
  return input_.take_sums(carver, gradient);
}

ReadoutLayer::State ReadoutLayer::state_at(std::byte* memory) const {
  Carver carver(memory);
  State found{};
  if (options_.leaky) found.outputs = take_floats(carver, units());
  found.bytes = carver.used();
  return found;
}

ReadoutLayer::Tape ReadoutLayer::tape_at(std::byte* memory) const {
  Carver carver(memory);
  Tape found{};
  found.outputs = take_floats(carver, options_.chunk * units());
  if (options_.leaky) found.before = take_floats(carver, units());
  found.bytes = carver.used();
  return found;
}

ReadoutLayer::Scratch ReadoutLayer::scratch_at(std::byte* memory) const {
  Carver carver(memory);
  Scratch found{};
  found.of_sums = take_floats(carver, options_.chunk * units());
  if (number() != CudaNumber::f32) found.rounded = take_array(carver, options_.chunk * row_bytes());
  if (options_.leaky) found.of_decays = take_floats(carver, units());
  found.bytes = carver.used();
  return found;
}

void ReadoutLayer::begin(std::byte* memory, void* stream) const {
  input_.begin(prepared_at(memory).w_ih, stream);
}

void ReadoutLayer::prepare(const float* given, std::byte* memory, void* stream) const {
  const Prepared own = prepared_at(memory);
  const Parameters at = parameters();
  const std::int64_t outputs = options_.hidden;
  input_.prepare(own.w_ih, given, stream);
  if (options_.bias) cuda_add(CudaNumber::f32, own.bias, given + at.bias, nullptr, outputs, stream);
  if (options_.leaky) cuda_decays(own.decays, given + at.tau, outputs, stream);
  cuda_fill(CudaNumber::f32, own.ones, 1, options_.chunk * options_.batch, stream);
}

void ReadoutLayer::copy(void* to, const void* from, void* stream) const {
  if (!options_.leaky) return;
  if (from == nullptr) return cuda_zero(to, state_floats(), stream);
  cuda_copy(to, from, state_floats(), stream);
}

void ReadoutLayer::load(const float* given, std::byte* state, void* stream) const {
  copy(state, given, stream);
}
void ReadoutLayer::store(const std::byte* state, float* to, void* stream) const {
  copy(to, state, stream);
}
void ReadoutLayer::load_adjoint(const float* given, std::byte* adjoint, void* stream) const {
  copy(adjoint, given, stream);
}
void ReadoutLayer::store_adjoint(const std::byte* adjoint, float* to, void* stream) const {
  copy(to, adjoint, stream);
}

void ReadoutLayer::run(const DeviceWork& work, const Prepared& own, std::int64_t steps,
                       const void* x, const float* before, float* outputs, float* after) const {
  const std::int64_t rows = steps * options_.batch;
  if (options_.bias)
    cuda_repeat(CudaNumber::f32, outputs, own.bias, rows, options_.hidden, work.stream);
  CudaProduct product = product_of_numbers();
  product.sums = outputs;
  product.adds = options_.bias;
  input_.multiply(*work.products, product, own.w_ih, rows, x);
  if (!options_.leaky) return;
  leaky_forward({steps, options_.batch, options_.hidden}, own.decays, before, outputs, after,
                work.stream);
}

void ReadoutLayer::advance(const DeviceWork& work, const std::byte* prepared, std::int64_t steps,
                           const void* x, const std::byte* before, std::byte* after, void* outputs,
                           std::byte*) const {
  run(work, prepared_at(unconst(prepared)), steps, x, state_at(unconst(before)).outputs,
      static_cast<float*>(outputs), state_at(after).outputs);
}

const void* ReadoutLayer::record(const DeviceWork& work, const std::byte* prepared,
                                 std::int64_t steps, const void* x, const std::byte* before,
                                 std::byte* memory, std::byte*) const {
  const Tape tape = tape_at(memory);
  copy(tape.before, before, work.stream);
  // The last of the outputs is the state after: what the kernel writes twice has the same bits.
  run(work, prepared_at(unconst(prepared)), steps, x, tape.before, tape.outputs,
      tape.outputs + (steps - 1) * units());
  return tape.outputs;
}

const void* ReadoutLayer::outputs_of_tape(const std::byte* memory) const {
  return tape_at(unconst(memory)).outputs;
}

void ReadoutLayer::state_of_tape(const std::byte* memory, std::int64_t steps, std::byte* state,
                                 void* stream) const {
  copy(state, tape_at(unconst(memory)).outputs + (steps - 1) * units(), stream);
}

void ReadoutLayer::reverse(const DeviceWork& work, const std::byte* prepared, const Reversed& given,
                           std::byte* memory) const {
  const Prepared own = prepared_at(unconst(prepared));
  const Scratch scratch = scratch_at(memory);
  const Tape tape = tape_at(given.tape);
  const auto* of_sums = static_cast<const float*>(given.outputs_gradient);
  if (options_.leaky) {
    LeakyBackward back;
    back.decays = own.decays;
    back.before = tape.before;
    back.outputs = tape.outputs;
    back.outputs_gradient = of_sums;
    back.after_gradient = state_at(unconst(given.of_after)).outputs;
    back.sums_gradient = scratch.of_sums;
    back.before_gradient = state_at(given.of_before).outputs;
    back.decays_gradient = options_.learns_tau ? scratch.of_decays : nullptr;
    leaky_backward({given.steps, options_.batch, options_.hidden}, back, work.stream);
    of_sums = scratch.of_sums;
  } else if (of_sums == nullptr) {
    cuda_zero(scratch.of_sums, given.steps * state_floats(), work.stream);
    of_sums = scratch.of_sums;
  }
  add_gradients(work, own, given, of_sums, scratch);
}

void ReadoutLayer::add_gradients(const DeviceWork& work, const Prepared& own, const Reversed& given,
                                 const float* of_sums, const Scratch& scratch) const {
  const Parameters at = parameters();
  const std::int64_t outputs = options_.hidden, rows = given.steps * options_.batch;
  const void* read = of_sums;
  if (scratch.rounded != nullptr) {
    cuda_add(number(), scratch.rounded, of_sums, nullptr, rows * outputs, work.stream);
    read = scratch.rounded;
  }
  const CudaProduct product = product_of_numbers();
  if (given.of_x != nullptr)
    input_.multiply_back(*work.products, product, own.w_ih, rows, read, given.of_x);
  input_.add_gradient(*work.products, product, rows, read, given.x,
                      sums_at(given.sums, given.gradient));
  if (options_.bias) {
    add_rows(work, product_of_floats(), {own.ones, of_sums, rows, outputs},
             given.gradient + at.bias);
  }
  if (options_.leaky && options_.learns_tau) {
    add_rows(work, product_of_floats(), {own.ones, scratch.of_decays, options_.batch, outputs},
             given.gradient + at.tau);
  }
}

void ReadoutLayer::finish(const std::byte* prepared, const std::byte* sums, float* gradient,
                          void* stream) const {
  const Prepared own = prepared_at(unconst(prepared));
  input_.finish(own.w_ih, sums_at(unconst(sums), gradient), gradient, stream);
  if (!options_.leaky || !options_.learns_tau) return;
  cuda_of_decays(gradient + parameters().tau, own.decays, options_.hidden, stream);
}

}  // namespace ebb
