// SPDX-License-Identifier: Apache-2.0
#include "ebb/cell/spiking_layer.h"

#include "ebb/device/cuda_arrays.h"

namespace ebb {

SpikingLayer::SpikingLayer(const SpikingLayerOptions& options)
    : DeviceLayer(options),
      options_(options),
      input_(number(), options.hidden, options.inputs, options.input_pattern),
      recurrent_(number(), options.recurrent ? options.hidden : 0, options.hidden,
                 options.recurrent_pattern) {}

// As lif_math.h, alif_math.h and adlif_math.h have them.
int SpikingLayer::numbers() const {
  if (options_.cell == SpikingCell::lif) return 2;
  return options_.cell == SpikingCell::alif ? 4 : 5;
}
bool SpikingLayer::is_time_constant(int number) const {
  return number == 1 || (number == 2 && options_.cell != SpikingCell::lif);
}
bool SpikingLayer::learns(int number) const {
  return number == 0 ? options_.learns_threshold : options_.learns_others;
}

SpikingShape SpikingLayer::shape(std::int64_t steps) const {
  SpikingShape found;
  found.cell = options_.cell;
  found.number = options_.number;
  found.steps = steps;
  found.batch = options_.batch;
  found.hidden = options_.hidden;
  found.constants = options_.constants;
  found.surrogate = options_.surrogate;
  found.recurrent = options_.recurrent;
  return found;
}

std::string SpikingLayer::unfit() const { return spiking_unfit(shape(options_.chunk)); }

SpikingLayer::Parameters SpikingLayer::parameters() const {
  const std::int64_t hidden = options_.hidden;
  Parameters found{};
  found.weight_hh = input_.size();
  found.bias = found.weight_hh + recurrent_.size();
  found.numbers = found.bias + (options_.bias ? hidden : 0);
  found.size = found.numbers + numbers() * hidden;
  return found;
}

SpikingLayer::Prepared SpikingLayer::prepared_at(std::byte* memory) const {
  const std::int64_t hidden = options_.hidden, each = number_bytes();
  Carver carver(memory);
  Prepared found{};
  found.w_ih = input_.take_prepared(carver);
  found.w_hh = recurrent_.take_prepared(carver);
  if (options_.bias) {
    found.bias = take_array(carver, hidden * each);
    found.ones = take_array(carver, options_.chunk * options_.batch * each);
  }
  found.numbers = take_floats(carver, numbers() * hidden);
  if (learns_any()) found.samples = take_floats(carver, options_.batch);
  found.bytes = carver.used();
  return found;
}

SpikingLayer::Sums SpikingLayer::sums_at(std::byte* memory, float* gradient) const {
  Carver carver(memory);
  Sums found{};
  found.w_ih = input_.take_sums(carver, gradient);
  found.w_hh = recurrent_.take_sums(carver, gradient + parameters().weight_hh);
  return found;
}

SpikingLayer::State SpikingLayer::state_at(std::byte* memory) const {
  Carver carver(memory);
  State found{};
  found.spikes = take_array(carver, row_bytes());
  found.fields = take_floats(carver, own_fields() * units());
  found.bytes = carver.used();
  return found;
}

SpikingLayer::Adjoint SpikingLayer::adjoint_at(std::byte* memory) const {
  Carver carver(memory);
  Adjoint found{};
  found.spikes = take_floats(carver, units());
  found.fields = take_floats(carver, own_fields() * units());
  found.bytes = carver.used();
  return found;
}

SpikingLayer::Tape SpikingLayer::tape_at(std::byte* memory) const {
  Carver carver(memory);
  Tape found{};
  found.spikes = take_array(carver, (options_.chunk + 1) * row_bytes());
  found.before = take_floats(carver, own_fields() * units());
  found.after = take_floats(carver, own_fields() * units());
  found.bytes = carver.used();
  return found;
}

SpikingLayer::Scratch SpikingLayer::scratch_at(std::byte* memory) const {
  Carver carver(memory);
  Scratch found{};
  found.sums = take_array(carver, options_.chunk * row_bytes());
  found.kept = take_floats(carver, spiking_kept(shape(options_.chunk)));
  if (learns_any()) found.of_numbers = take_floats(carver, numbers() * units());
  found.bytes = carver.used();
  return found;
}

std::int64_t SpikingLayer::parameter_size() const { return parameters().size; }
std::int64_t SpikingLayer::multiplied_size() const {
  return parameter_size() + input_.missing() + recurrent_.missing();
}
Bytes SpikingLayer::prepared_bytes() const { return prepared_at(nullptr).bytes; }
Bytes SpikingLayer::sums_bytes() const { return input_.sums_bytes() + recurrent_.sums_bytes(); }
Bytes SpikingLayer::state_bytes() const { return state_at(nullptr).bytes; }
Bytes SpikingLayer::adjoint_bytes() const { return adjoint_at(nullptr).bytes; }
Bytes SpikingLayer::tape_bytes() const { return tape_at(nullptr).bytes; }
Bytes SpikingLayer::reverse_bytes() const { return scratch_at(nullptr).bytes; }

Bytes SpikingLayer::forward_bytes() const {
  Carver carver(nullptr);
  take_array(carver, options_.chunk * row_bytes());
  return carver.used();
}

void SpikingLayer::begin(std::byte* memory, void* stream) const {
  const Prepared own = prepared_at(memory);
  input_.begin(own.w_ih, stream);
  recurrent_.begin(own.w_hh, stream);
}

void SpikingLayer::prepare(const float* given, std::byte* memory, void* stream) const {
  const Prepared own = prepared_at(memory);
  const Parameters at = parameters();
  const std::int64_t hidden = options_.hidden;
  input_.prepare(own.w_ih, given, stream);
  recurrent_.prepare(own.w_hh, given + at.weight_hh, stream);
  if (options_.bias) {
    cuda_add(number(), own.bias, given + at.bias, nullptr, hidden, stream);
    cuda_fill(number(), own.ones, 1, options_.chunk * options_.batch, stream);
  }
  for (int k = 0; k < numbers(); ++k) {
    const float* const from = given + at.numbers + k * hidden;
    float* const to = own.numbers + k * hidden;
    if (is_time_constant(k)) {
      cuda_decays(to, from, hidden, stream);
    } else {
      cuda_copy(to, from, hidden * static_cast<Bytes>(sizeof(float)), stream);
    }
  }
  if (own.samples != nullptr) cuda_fill(CudaNumber::f32, own.samples, 1, options_.batch, stream);
}

void SpikingLayer::load(const float* given, std::byte* memory, void* stream) const {
  const State own = state_at(memory);
  if (given == nullptr) return cuda_zero(memory, own.bytes, stream);
  const std::int64_t hidden = options_.hidden, stride = fields() * hidden;
  const auto take = [&](int field, CudaNumber to, void* data) {
    cuda_convert({to, data, hidden},
                 {CudaNumber::f32, const_cast<float*>(given) + field * hidden, stride},
                 options_.batch, hidden, stream);
  };
  for (int k = 0; k < own_fields(); ++k) take(k, CudaNumber::f32, own.fields + k * units());
  take(own_fields(), number(), own.spikes);
}

void SpikingLayer::store(const std::byte* memory, float* to, void* stream) const {
  const State own = state_at(unconst(memory));
  const std::int64_t hidden = options_.hidden, stride = fields() * hidden;
  const auto give = [&](int field, CudaNumber from, void* data) {
    cuda_convert({CudaNumber::f32, to + field * hidden, stride}, {from, data, hidden},
                 options_.batch, hidden, stream);
  };
  for (int k = 0; k < own_fields(); ++k) give(k, CudaNumber::f32, own.fields + k * units());
  give(own_fields(), number(), own.spikes);
}

void SpikingLayer::load_adjoint(const float* given, std::byte* memory, void* stream) const {
  const Adjoint own = adjoint_at(memory);
  if (given == nullptr) return cuda_zero(memory, own.bytes, stream);
  const std::int64_t hidden = options_.hidden, stride = fields() * hidden;
  for (int k = 0; k <= own_fields(); ++k) {
    float* const to = k == own_fields() ? own.spikes : own.fields + k * units();
    cuda_convert({CudaNumber::f32, to, hidden},
                 {CudaNumber::f32, const_cast<float*>(given) + k * hidden, stride}, options_.batch,
                 hidden, stream);
  }
}

void SpikingLayer::store_adjoint(const std::byte* memory, float* to, void* stream) const {
  const Adjoint own = adjoint_at(unconst(memory));
  const std::int64_t hidden = options_.hidden, stride = fields() * hidden;
  for (int k = 0; k <= own_fields(); ++k) {
    float* const from = k == own_fields() ? own.spikes : own.fields + k * units();
    cuda_convert({CudaNumber::f32, to + k * hidden, stride}, {CudaNumber::f32, from, hidden},
                 options_.batch, hidden, stream);
  }
}

void SpikingLayer::add_inputs(const DeviceWork& work, const Prepared& own, std::int64_t steps,
                              const void* x, std::byte* sums) const {
  const std::int64_t rows = steps * options_.batch;
  if (options_.bias) cuda_repeat(number(), sums, own.bias, rows, options_.hidden, work.stream);
  CudaProduct product = product_of_numbers();
  product.sums_number = number();
  product.sums = sums;
  product.adds = options_.bias;
  input_.multiply(*work.products, product, own.w_ih, rows, x);
}

void SpikingLayer::run(const DeviceWork& work, const Prepared& own, std::int64_t steps,
                       const std::byte* sums, const std::byte* spikes, const float* fields,
                       void* outputs, float* after) const {
  SpikingForward given;
  given.weights = own.w_hh.matrix;
  given.parameters = own.numbers;
  given.sums = sums;
  given.before = spikes;
  given.fields_before = fields;
  given.outputs = outputs;
  given.fields_after = after;
  spiking_forward(shape(steps), given, work.stream);
}

void SpikingLayer::advance(const DeviceWork& work, const std::byte* prepared, std::int64_t steps,
                           const void* x, const std::byte* before, std::byte* after, void* outputs,
                           std::byte* scratch) const {
  const Prepared own = prepared_at(unconst(prepared));
  const State from = state_at(unconst(before)), to = state_at(after);
  add_inputs(work, own, steps, x, scratch);
  run(work, own, steps, scratch, from.spikes, from.fields, outputs, to.fields);
  cuda_copy(to.spikes, static_cast<const std::byte*>(outputs) + (steps - 1) * row_bytes(),
            row_bytes(), work.stream);
}

const void* SpikingLayer::record(const DeviceWork& work, const std::byte* prepared,
                                 std::int64_t steps, const void* x, const std::byte* before,
                                 std::byte* memory, std::byte* scratch) const {
  const Prepared own = prepared_at(unconst(prepared));
  const State from = state_at(unconst(before));
  const Tape tape = tape_at(memory);
  cuda_copy(tape.spikes, from.spikes, row_bytes(), work.stream);
  cuda_copy(tape.before, from.fields, own_fields() * units() * static_cast<Bytes>(sizeof(float)),
            work.stream);
  add_inputs(work, own, steps, x, scratch);
  std::byte* const outputs = tape.spikes + row_bytes();
  run(work, own, steps, scratch, tape.spikes, tape.before, outputs, tape.after);
  return outputs;
}

const void* SpikingLayer::outputs_of_tape(const std::byte* memory) const {
  return tape_at(unconst(memory)).spikes + row_bytes();
}

void SpikingLayer::state_of_tape(const std::byte* memory, std::int64_t steps, std::byte* state,
                                 void* stream) const {
  const Tape tape = tape_at(unconst(memory));
  const State to = state_at(state);
  cuda_copy(to.spikes, tape.spikes + steps * row_bytes(), row_bytes(), stream);
  cuda_copy(to.fields, tape.after, own_fields() * units() * static_cast<Bytes>(sizeof(float)),
            stream);
}

void SpikingLayer::reverse(const DeviceWork& work, const std::byte* prepared, const Reversed& given,
                           std::byte* memory) const {
  const Prepared own = prepared_at(unconst(prepared));
  const Tape tape = tape_at(given.tape);
  const Adjoint after = adjoint_at(unconst(given.of_after)), before = adjoint_at(given.of_before);
  const Scratch scratch = scratch_at(memory);
  const SpikingShape segment = shape(given.steps);
  std::byte* const outputs = tape.spikes + row_bytes();
  add_inputs(work, own, given.steps, given.x, scratch.sums);
  if (options_.recurrent) {
    CudaProduct product = product_of_numbers();
    product.sums_number = number();
    product.sums = scratch.sums;
    product.adds = true;
    recurrent_.multiply(*work.products, product, own.w_hh, given.steps * options_.batch,
                        tape.spikes);
    SpikingRecall recall;
    recall.parameters = own.numbers;
    recall.sums = scratch.sums;
    recall.before = tape.spikes;
    recall.outputs = outputs;
    recall.fields_before = tape.before;
    recall.kept = scratch.kept;
    spiking_recall(segment, recall, work.stream);
  }
  SpikingBackward back;
  back.weights = own.w_hh.matrix;
  back.parameters = own.numbers;
  back.sums = scratch.sums;
  back.kept = scratch.kept;
  back.outputs = outputs;
  back.before = tape.spikes;
  back.fields_before = tape.before;
  back.outputs_gradient = given.outputs_gradient;
  back.after_gradient = after.spikes;
  back.fields_gradient = after.fields;
  back.sums_gradient = scratch.sums;
  back.before_gradient = before.spikes;
  back.fields_before_gradient = before.fields;
  back.parameters_gradient = scratch.of_numbers;
  spiking_backward(segment, back, work.stream);
  add_gradients(work, own, given, scratch);
}

void SpikingLayer::add_gradients(const DeviceWork& work, const Prepared& own, const Reversed& given,
                                 const Scratch& scratch) const {
  const Parameters at = parameters();
  const Sums sums = sums_at(given.sums, given.gradient);
  const std::int64_t hidden = options_.hidden, rows = given.steps * options_.batch;
  const CudaProduct product = product_of_numbers();
  if (given.of_x != nullptr)
    input_.multiply_back(*work.products, product, own.w_ih, rows, scratch.sums, given.of_x);
  input_.add_gradient(*work.products, product, rows, scratch.sums, given.x, sums.w_ih);
  if (options_.recurrent) {
    recurrent_.add_gradient(*work.products, product, rows, scratch.sums, tape_at(given.tape).spikes,
                            sums.w_hh);
  }
  if (options_.bias)
    add_rows(work, product, {own.ones, scratch.sums, rows, hidden}, given.gradient + at.bias);
  for (int k = 0; k < numbers(); ++k) {
    if (!learns(k)) continue;
    add_rows(work, product_of_floats(),
             {own.samples, scratch.of_numbers + k * units(), options_.batch, hidden},
             given.gradient + at.numbers + k * hidden);
  }
}

void SpikingLayer::finish(const std::byte* prepared, const std::byte* memory, float* gradient,
                          void* stream) const {
  const Prepared own = prepared_at(unconst(prepared));
  const Sums sums = sums_at(unconst(memory), gradient);
  const Parameters at = parameters();
  const std::int64_t hidden = options_.hidden;
  input_.finish(own.w_ih, sums.w_ih, gradient, stream);
  recurrent_.finish(own.w_hh, sums.w_hh, gradient + at.weight_hh, stream);
  for (int k = 0; k < numbers(); ++k) {
    if (!learns(k) || !is_time_constant(k)) continue;
    cuda_of_decays(gradient + at.numbers + k * hidden, own.numbers + k * hidden, hidden, stream);
  }
}

}  // namespace ebb
