// SPDX-License-Identifier: Apache-2.0
#include "ebb/cell/gated_layer.h"

#include "ebb/device/cuda_arrays.h"

namespace ebb {

GatedLayer::GatedLayer(const GatedLayerOptions& options)
    : DeviceLayer(options),
      options_(options),
      input_(number(), gates() * options.hidden, options.inputs, options.input_pattern),
      recurrent_(number(), gates() * options.hidden, options.hidden, options.recurrent_pattern) {}

std::int64_t GatedLayer::gates() const {
  if (options_.cell == GatedCell::lstm) return 4;
  return has_apart() ? 3 : 1;
}

std::string GatedLayer::unfit() const { return gated_unfit(shape(options_.chunk)); }

GatedShape GatedLayer::shape(std::int64_t steps) const {
  return {options_.cell, options_.number, steps, options_.batch, options_.hidden, false};
}

GatedLayer::Parameters GatedLayer::parameters() const {
  const std::int64_t rows = gates() * options_.hidden;
  Parameters found{};
  found.weight_hh = input_.size();
  found.bias_ih = found.weight_hh + recurrent_.size();
  found.bias_hh = found.bias_ih + rows;
  found.thresholds = options_.bias ? found.bias_hh + rows : found.bias_ih;
  found.size = found.thresholds + (is_egru() ? options_.hidden : 0);
  return found;
}

GatedLayer::Prepared GatedLayer::prepared_at(std::byte* memory) const {
  const std::int64_t rows = gates() * options_.hidden, each = number_bytes();
  Carver carver(memory);
  Prepared found{};
  found.w_ih = input_.take_prepared(carver);
  found.w_hh = recurrent_.take_prepared(carver);
  if (options_.bias) {
    found.bias = take_array(carver, rows * each);
    if (has_apart()) found.gate_bias = take_array(carver, options_.hidden * each);
    found.ones = take_array(carver, options_.chunk * options_.batch * each);
  }
  if (is_egru()) found.thresholds = take_floats(carver, options_.hidden);
  if (options_.learns_threshold) found.samples = take_floats(carver, options_.batch);
  found.bytes = carver.used();
  return found;
}

GatedLayer::Sums GatedLayer::sums_at(std::byte* memory, float* gradient) const {
  Carver carver(memory);
  Sums found{};
  found.w_ih = input_.take_sums(carver, gradient);
  found.w_hh = recurrent_.take_sums(carver, gradient + parameters().weight_hh);
  return found;
}

GatedLayer::State GatedLayer::state_at(std::byte* memory) const {
  Carver carver(memory);
  State found{};
  if (!is_gru()) found.h = take_array(carver, row_bytes());
  if (is_gru() || has_c()) found.field = take_floats(carver, units());
  found.bytes = carver.used();
  return found;
}

GatedLayer::Adjoint GatedLayer::adjoint_at(std::byte* memory) const {
  Carver carver(memory);
  Adjoint found{};
  found.h = take_floats(carver, units());
  if (has_c()) found.field = take_floats(carver, units());
  found.bytes = carver.used();
  return found;
}

GatedLayer::Tape GatedLayer::tape_at(std::byte* memory) const {
  Carver carver(memory);
  Tape found{};
  found.gates = take_array(carver, options_.chunk * gates() * row_bytes());
  // h before the chunk and then its outputs: what recurrent weights are multiplied by is one piece.
  found.hs = take_array(carver, (options_.chunk + 1) * row_bytes());
  if (is_gru() || has_c()) found.field_before = take_floats(carver, units());
  if (has_c()) found.fields = take_floats(carver, options_.chunk * units());
  if (has_apart()) found.products = take_array(carver, options_.chunk * row_bytes());
  if (is_gru()) found.field_after = take_floats(carver, units());
  found.bytes = carver.used();
  return found;
}

GatedLayer::Scratch GatedLayer::scratch_at(std::byte* memory) const {
  Carver carver(memory);
  Scratch found{};
  found.of_sums = take_array(carver, options_.chunk * gates() * row_bytes());
  if (options_.learns_threshold) found.of_thresholds = take_floats(carver, units());
  found.bytes = carver.used();
  return found;
}

std::int64_t GatedLayer::parameter_size() const { return parameters().size; }
std::int64_t GatedLayer::multiplied_size() const {
  return parameter_size() + input_.missing() + recurrent_.missing();
}
Bytes GatedLayer::prepared_bytes() const { return prepared_at(nullptr).bytes; }
Bytes GatedLayer::sums_bytes() const { return input_.sums_bytes() + recurrent_.sums_bytes(); }
Bytes GatedLayer::state_bytes() const { return state_at(nullptr).bytes; }
Bytes GatedLayer::adjoint_bytes() const { return adjoint_at(nullptr).bytes; }
Bytes GatedLayer::tape_bytes() const { return tape_at(nullptr).bytes; }
Bytes GatedLayer::reverse_bytes() const { return scratch_at(nullptr).bytes; }

Bytes GatedLayer::forward_bytes() const {
  Carver carver(nullptr);
  take_array(carver, options_.chunk * gates() * row_bytes());
  if (is_gru()) take_array(carver, row_bytes());
  return carver.used();
}

void GatedLayer::begin(std::byte* memory, void* stream) const {
  const Prepared own = prepared_at(memory);
  input_.begin(own.w_ih, stream);
  recurrent_.begin(own.w_hh, stream);
}

void GatedLayer::prepare(const float* given, std::byte* memory, void* stream) const {
  const Prepared own = prepared_at(memory);
  const Parameters at = parameters();
  const std::int64_t hidden = options_.hidden, rows = gates() * hidden;
  input_.prepare(own.w_ih, given, stream);
  recurrent_.prepare(own.w_hh, given + at.weight_hh, stream);
  if (is_egru()) {
    cuda_copy(own.thresholds, given + at.thresholds, hidden * static_cast<Bytes>(sizeof(float)),
              stream);
  }
  if (options_.learns_threshold) cuda_fill(CudaNumber::f32, own.samples, 1, options_.batch, stream);
  if (!options_.bias) return;
  const float* const ih = given + at.bias_ih;
  const float* const hh = given + at.bias_hh;
  // The bias of the sum that r multiplies cannot be added beforehand.
  const std::int64_t both = has_apart() ? 2 * hidden : rows;
  cuda_add(number(), own.bias, ih, hh, both, stream);
  if (has_apart()) {
    cuda_add(number(), own.bias + both * number_bytes(), ih + both, nullptr, hidden, stream);
    cuda_add(number(), own.gate_bias, hh + both, nullptr, hidden, stream);
  }
  cuda_fill(number(), own.ones, 1, options_.chunk * options_.batch, stream);
}

void GatedLayer::load(const float* given, std::byte* memory, void* stream) const {
  const State own = state_at(memory);
  if (given == nullptr) return cuda_zero(memory, own.bytes, stream);
  const std::int64_t hidden = options_.hidden;
  const auto take = [&](const float* from, CudaNumber to, void* data) {
    cuda_convert({to, data, hidden}, {CudaNumber::f32, const_cast<float*>(from), fields() * hidden},
                 options_.batch, hidden, stream);
  };
  if (own.h != nullptr) take(given, number(), own.h);
  if (own.field != nullptr) take(has_c() ? given + hidden : given, CudaNumber::f32, own.field);
}

void GatedLayer::store(const std::byte* memory, float* to, void* stream) const {
  const State own = state_at(unconst(memory));
  const std::int64_t hidden = options_.hidden;
  const auto give = [&](float* place, CudaNumber from, void* data) {
    cuda_convert({CudaNumber::f32, place, fields() * hidden}, {from, data, hidden}, options_.batch,
                 hidden, stream);
  };
  if (own.h != nullptr) give(to, number(), own.h);
  if (own.field != nullptr) give(has_c() ? to + hidden : to, CudaNumber::f32, own.field);
}

void GatedLayer::load_adjoint(const float* given, std::byte* memory, void* stream) const {
  const Adjoint own = adjoint_at(memory);
  if (given == nullptr) return cuda_zero(memory, own.bytes, stream);
  const std::int64_t hidden = options_.hidden;
  const auto take = [&](const float* from, float* to) {
    cuda_convert({CudaNumber::f32, to, hidden},
                 {CudaNumber::f32, const_cast<float*>(from), fields() * hidden}, options_.batch,
                 hidden, stream);
  };
  take(given, own.h);
  if (own.field != nullptr) take(given + hidden, own.field);
}

void GatedLayer::store_adjoint(const std::byte* memory, float* to, void* stream) const {
  const Adjoint own = adjoint_at(unconst(memory));
  const std::int64_t hidden = options_.hidden;
  const auto give = [&](float* from, float* place) {
    cuda_convert({CudaNumber::f32, place, fields() * hidden}, {CudaNumber::f32, from, hidden},
                 options_.batch, hidden, stream);
  };
  give(own.h, to);
  if (own.field != nullptr) give(own.field, to + hidden);
}

void GatedLayer::add_inputs(const DeviceWork& work, const Prepared& own, std::int64_t rows,
                            const void* x, std::byte* sums) const {
  const std::int64_t columns = gates() * options_.hidden;
  if (options_.bias) cuda_repeat(number(), sums, own.bias, rows, columns, work.stream);
  CudaProduct product = product_of_numbers();
  product.sums_number = number();
  product.sums = sums;
  product.adds = options_.bias;
  input_.multiply(*work.products, product, own.w_ih, rows, x);
}

// A gru's h in the number's type.
void GatedLayer::round(std::byte* to, const float* from, void* stream) const {
  cuda_add(number(), to, from, nullptr, units(), stream);
}

void GatedLayer::advance(const DeviceWork& work, const std::byte* prepared, std::int64_t steps,
                         const void* x, const std::byte* before, std::byte* after, void* outputs,
                         std::byte* scratch) const {
  const Prepared own = prepared_at(unconst(prepared));
  const State from = state_at(unconst(before)), to = state_at(after);
  Carver carver(scratch);
  auto* const sums = take_array(carver, options_.chunk * gates() * row_bytes());
  std::byte* h = from.h;
  if (is_gru()) {
    h = take_array(carver, row_bytes());
    round(h, from.field, work.stream);
  }
  add_inputs(work, own, steps * options_.batch, x, sums);
  GatedForward given;
  given.weights = own.w_hh.matrix;
  given.bias = own.gate_bias;
  given.sums = sums;
  given.before = h;
  given.field_before = from.field;
  given.outputs = outputs;
  given.field_after = to.field;
  given.thresholds = own.thresholds;
  gated_forward(shape(steps), given, false, work.stream);
  if (to.h == nullptr) return;
  cuda_copy(to.h, static_cast<const std::byte*>(outputs) + (steps - 1) * row_bytes(), row_bytes(),
            work.stream);
}

const void* GatedLayer::record(const DeviceWork& work, const std::byte* prepared,
                               std::int64_t steps, const void* x, const std::byte* before,
                               std::byte* memory, std::byte*) const {
  const Prepared own = prepared_at(unconst(prepared));
  const State from = state_at(unconst(before));
  const Tape tape = tape_at(memory);
  if (from.h != nullptr) {
    cuda_copy(tape.hs, from.h, row_bytes(), work.stream);
  } else {
    round(tape.hs, from.field, work.stream);
  }
  if (tape.field_before != nullptr) {
    cuda_copy(tape.field_before, from.field, units() * static_cast<Bytes>(sizeof(float)),
              work.stream);
  }
  add_inputs(work, own, steps * options_.batch, x, tape.gates);
  std::byte* const outputs = tape.hs + row_bytes();
  GatedForward given;
  given.weights = own.w_hh.matrix;
  given.bias = own.gate_bias;
  given.sums = tape.gates;
  given.before = tape.hs;
  given.field_before = tape.field_before;
  given.outputs = outputs;
  // c is the last of the fields, too: what the kernel writes twice has the same bits.
  given.field_after = has_c() ? tape.fields + (steps - 1) * units() : tape.field_after;
  given.fields = tape.fields;
  given.products = tape.products;
  given.thresholds = own.thresholds;
  gated_forward(shape(steps), given, true, work.stream);
  return outputs;
}

const void* GatedLayer::outputs_of_tape(const std::byte* memory) const {
  return tape_at(unconst(memory)).hs + row_bytes();
}

void GatedLayer::state_of_tape(const std::byte* memory, std::int64_t steps, std::byte* state,
                               void* stream) const {
  const Tape tape = tape_at(unconst(memory));
  const State to = state_at(state);
  if (to.h != nullptr) cuda_copy(to.h, tape.hs + steps * row_bytes(), row_bytes(), stream);
  if (to.field == nullptr) return;
  const float* const field = has_c() ? tape.fields + (steps - 1) * units() : tape.field_after;
  cuda_copy(to.field, field, units() * static_cast<Bytes>(sizeof(float)), stream);
}

void GatedLayer::reverse(const DeviceWork& work, const std::byte* prepared, const Reversed& given,
                         std::byte* memory) const {
  const Prepared own = prepared_at(unconst(prepared));
  const Tape tape = tape_at(given.tape);
  const Scratch scratch = scratch_at(memory);
  const Adjoint after = adjoint_at(unconst(given.of_after)), before = adjoint_at(given.of_before);
  // A gate is read before its gradient is written.
  std::byte* const of_inputs = has_apart() ? tape.gates : scratch.of_sums;
  GatedBackward back;
  back.weights = own.w_hh.matrix;
  back.gates = tape.gates;
  back.fields = tape.fields;
  back.products = tape.products;
  back.outputs = tape.hs + row_bytes();
  back.before = tape.hs;
  back.field_before = tape.field_before;
  back.outputs_gradient = given.outputs_gradient;
  back.after_gradient = after.h;
  back.field_gradient = after.field;
  back.sums_gradient = scratch.of_sums;
  back.inputs_gradient = of_inputs;
  back.before_gradient = before.h;
  back.field_before_gradient = before.field;
  back.thresholds = own.thresholds;
  back.thresholds_gradient = scratch.of_thresholds;
  back.surrogate = options_.surrogate;
  back.sharpness = options_.sharpness;
  gated_backward(shape(given.steps), back, work.stream);
  if (given.of_x != nullptr) {
    input_.multiply_back(*work.products, product_of_numbers(), own.w_ih,
                         given.steps * options_.batch, of_inputs, given.of_x);
  }
  add_gradients(work, own, given, scratch, of_inputs);
  if (options_.learns_threshold)
    add_thresholds(work, own, scratch.of_thresholds, given.gradient + parameters().thresholds);
}

void GatedLayer::add_gradients(const DeviceWork& work, const Prepared& own, const Reversed& given,
                               const Scratch& scratch, const std::byte* of_inputs) const {
  const Parameters at = parameters();
  const Sums sums = sums_at(given.sums, given.gradient);
  const std::int64_t columns = gates() * options_.hidden, rows = given.steps * options_.batch;
  const CudaProduct product = product_of_numbers();
  input_.add_gradient(*work.products, product, rows, of_inputs, given.x, sums.w_ih);
  recurrent_.add_gradient(*work.products, product, rows, scratch.of_sums, tape_at(given.tape).hs,
                          sums.w_hh);
  if (!options_.bias) return;
  const auto add_bias = [&](const std::byte* of, float* to) {
    add_rows(work, product, {own.ones, of, rows, columns}, to);
  };
  add_bias(scratch.of_sums, given.gradient + at.bias_hh);
  if (has_apart()) add_bias(of_inputs, given.gradient + at.bias_ih);
}

void GatedLayer::add_thresholds(const DeviceWork& work, const Prepared& own,
                                const float* of_thresholds, float* gradient) const {
  add_rows(work, product_of_floats(), {own.samples, of_thresholds, options_.batch, options_.hidden},
           gradient);
}

void GatedLayer::finish(const std::byte* prepared, const std::byte* memory, float* gradient,
                        void* stream) const {
  const Prepared own = prepared_at(unconst(prepared));
  const Sums sums = sums_at(unconst(memory), gradient);
  const Parameters at = parameters();
  input_.finish(own.w_ih, sums.w_ih, gradient, stream);
  recurrent_.finish(own.w_hh, sums.w_hh, gradient + at.weight_hh, stream);
  if (has_apart() || !options_.bias) return;
  cuda_copy(gradient + at.bias_ih, gradient + at.bias_hh,
            (at.bias_hh - at.bias_ih) * static_cast<Bytes>(sizeof(float)), stream);
}

}  // namespace ebb
