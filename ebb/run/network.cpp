// SPDX-License-Identifier: Apache-2.0
#include "ebb/run/network.h"

#include <algorithm>
#include <cstring>

#include "ebb/cell/stack.h"
#include "ebb/core/at.h"
#include "ebb/core/error.h"
#include "ebb/core/vector_bytes.h"
#include "ebb/core/workers.h"
#include "ebb/core/zeros.h"

namespace ebb {
namespace {

int threads_of(int asked) { return asked != 0 ? asked : usable_processors(); }

StackOptions stack_of(const NetworkOptions& options) {
  StackOptions stack;
  stack.time_steps = options.time_steps;
  stack.batch = options.batch;
  stack.layers = options.layers;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  stack.chunk = options.chunk != 0 ? options.chunk : options.grain;
#pragma GCC diagnostic pop
  stack.pipelined = options.pipelined;
  stack.dropout = options.dropout;
  stack.seed = options.seed;
  stack.first_sample = options.first_sample;
  stack.input_spikes = options.input_spikes;
  stack.input_gradient = options.input_gradient;
  return stack;
}

template <class Row>
void check_width(const char* what, const Sequence<Row>& rows, std::int64_t width) {
  if (!rows || static_cast<std::int64_t>(rows.width()) == width) return;
  fail(ErrorCode::invalid_argument, what, " has rows of ", rows.width(), "; they must have ",
       width);
}

}  // namespace

template <class Number>
struct Network<Number>::State : Outside<Number> {
  explicit State(const NetworkOptions& options)
      : stack(stack_of(options), threads_of(options.threads)),
        values(aligned_zeros<Number>(at(stack.parameter_size()), "the parameters")),
        gradient(aligned_zeros<Number>(values.size(), "the parameters' gradient")),
        output_row(at(stack.batch() * stack.outputs())),
        is_spikes(options.input_spikes) {
    stack.initialise(options.seed, values.data());
    for (const NamedParameter& own : stack.parameters()) {
      layout.push_back({own.name, own.shape, own.offset, own.size, own.learns});
    }
    for (const Layer<Number>& layer : stack.layers()) {
      of_spikes.emplace_back(layer.shape().spikes ? at(stack.batch() * layer.options().hidden) : 0);
    }
  }

  Rows<Number> input(std::int64_t t) override {
    const std::int64_t words = words_of(stack.inputs());
    if (is_spikes) return {nullptr, row_of(spikes, t, words_kept), words, 1};
    return {row_of(values_in, t, values_kept), nullptr, stack.inputs(), 1};
  }
  // A function's row stays until the next call only, and a stack wants those of one step.
  template <class Row>
  const Row* row_of(const Sequence<const Row>& rows, std::int64_t t, std::vector<Row>& kept) {
    if (!rows) fail(ErrorCode::invalid_argument, "the network has no input; set it first");
    const std::span<const Row> row = rows.at(t);
    if (rows.bytes() > 0) return row.data();
    kept.resize(at(stack.chunk()) * rows.width());
    Row* const place = kept.data() + at(t % stack.chunk()) * rows.width();
    std::copy(row.begin(), row.end(), place);
    return place;
  }
  // Outputs without gaps, for those that are fields among others; spikes as numbers.
  std::span<const Number> plain(const Rows<Number>& rows) {
    const std::int64_t units = stack.outputs();
    if (rows.values != nullptr && rows.stride == units) return {rows.values, output_row.size()};
    for (std::int64_t b = 0; b < stack.batch(); ++b) {
      for (std::int64_t u = 0; u < units; ++u) {
        output_row[at(b * units + u)] =
            rows.values != nullptr
                ? rows.values[b * rows.stride + u]
                : static_cast<Number>(rows.bits[b * rows.stride + u / 64] >> (u % 64) & 1);
      }
    }
    return output_row;
  }
  void output(std::int64_t t, const Rows<Number>& rows) override {
    if (loss != nullptr) loss->output(t, plain(rows));
    if (outputs) std::ranges::copy(plain(rows), outputs.at(t).begin());
  }
  bool output_gradient(std::int64_t t, const Rows<Number>& rows, Number* to) override {
    const std::span<Number> all(to, output_row.size());
    if (loss != nullptr) return loss->gradient(t, plain(rows), all);
    if (!of_outputs) return false;
    std::ranges::copy(of_outputs.at(t), all.begin());
    return true;
  }
  void input_gradient(std::int64_t t, std::span<const Number> from) override {
    if (of_inputs) std::ranges::copy(from, of_inputs.at(t).begin());
  }

  Stack<Number> stack;
  AlignedVector<Number> values, gradient;
  std::vector<Number> output_row;
  std::vector<std::vector<Number>> of_spikes;  // in the initial state, of each layer
  std::vector<NetworkParameter> layout;
  bool is_spikes;
  std::uint64_t iteration = 0;
  Sequence<const Number> values_in, of_outputs;
  Sequence<const std::uint64_t> spikes;
  Sequence<Number> outputs, of_inputs;
  std::vector<Number> values_kept;
  std::vector<std::uint64_t> words_kept;
  Loss<Number>* loss = nullptr;
};

template <class Number>
Network<Number>::Network(const NetworkOptions& options)
    : state_(std::make_unique<State>(options)) {}
template <class Number>
Network<Number>::~Network() = default;

template <class Number>
std::int64_t Network<Number>::time_steps() const {
  return state_->stack.time_steps();
}
template <class Number>
std::int64_t Network<Number>::batch() const {
  return state_->stack.batch();
}
template <class Number>
std::int64_t Network<Number>::inputs() const {
  return state_->stack.inputs();
}
template <class Number>
std::int64_t Network<Number>::outputs() const {
  return state_->stack.outputs();
}
template <class Number>
std::int64_t Network<Number>::chunk() const {
  return state_->stack.chunk();
}

template <class Number>
void Network<Number>::set_input(Sequence<const Number> input) {
  check_width("the input", input, batch() * inputs());
  if (state_->is_spikes) {
    fail(ErrorCode::invalid_argument, "the network was made for spikes; use set_spikes");
  }
  state_->values_in = std::move(input);
}
template <class Number>
void Network<Number>::set_spikes(Sequence<const std::uint64_t> spikes) {
  check_width("the input", spikes, batch() * words_of(inputs()));
  if (!state_->is_spikes) {
    fail(ErrorCode::invalid_argument,
         "the network was made for numbers; say input_spikes to give bits");
  }
  state_->spikes = std::move(spikes);
}
template <class Number>
void Network<Number>::set_lengths(std::span<const std::int64_t> lengths) {
  state_->stack.set_lengths(lengths);
}
template <class Number>
void Network<Number>::set_loss(Loss<Number>* loss) {
  state_->loss = loss;
}
template <class Number>
void Network<Number>::set_output(Sequence<Number> output) {
  check_width("the output", output, batch() * outputs());
  state_->outputs = std::move(output);
}
template <class Number>
void Network<Number>::set_output_gradient(Sequence<const Number> gradient) {
  check_width("the gradient of the output", gradient, batch() * outputs());
  state_->of_outputs = std::move(gradient);
}
template <class Number>
void Network<Number>::set_input_gradient(Sequence<Number> gradient) {
  check_width("the gradient of the input", gradient, batch() * inputs());
  state_->of_inputs = std::move(gradient);
}
template <class Number>
void Network<Number>::set_dropout(bool on) {
  state_->stack.set_dropout(on);
}
template <class Number>
void Network<Number>::set_iteration(std::uint64_t iteration) {
  state_->iteration = iteration;
}

template <class Number>
const std::vector<NetworkParameter>& Network<Number>::layout() const {
  return state_->layout;
}
template <class Number>
std::span<Number> Network<Number>::values() {
  return state_->values;
}
template <class Number>
std::span<const Number> Network<Number>::gradient() const {
  return state_->gradient;
}
template <class Number>
std::span<Number> Network<Number>::gradient() {
  return state_->gradient;
}
template <class Number>
const Pattern* Network<Number>::input_pattern(std::int64_t layer) const {
  return state_->stack.layers().at(at(layer)).input_pattern();
}
template <class Number>
const Pattern* Network<Number>::recurrent_pattern(std::int64_t layer) const {
  return state_->stack.layers().at(at(layer)).recurrent_pattern();
}
template <class Number>
std::span<std::uint64_t> Network<Number>::spikes(std::int64_t layer,
                                                 std::span<std::byte> state) const {
  const Stack<Number>& stack = state_->stack;
  const Layer<Number>& own = stack.layers().at(at(layer));
  if (!own.shape().spikes || own.spikes().is_list()) {
    fail(ErrorCode::invalid_argument, "layer ", layer, " of '", own.options().cell,
         "' keeps no spikes as bits");
  }
  if (static_cast<Bytes>(state.size()) != stack.state_bytes()) {
    fail(ErrorCode::invalid_argument, "a state of ", state.size(), " bytes; the network's have ",
         stack.state_bytes());
  }
  auto* const words = reinterpret_cast<std::uint64_t*>(state.data() + stack.spikes_at(layer));
  return {words, at(batch() * words_of(own.options().hidden))};
}
template <class Number>
std::span<const Number> Network<Number>::spike_gradient(std::int64_t layer) const {
  return state_->of_spikes.at(at(layer));
}
template <class Number>
double Network<Number>::activity() const {
  return state_->stack.activity();
}
template <class Number>
std::int64_t Network<Number>::dropped_spikes() const {
  return state_->stack.dropped();
}
template <class Number>
Bytes Network<Number>::plain_bytes() const {
  return state_->stack.lean_bytes() * time_steps();
}
template <class Number>
Bytes Network<Number>::prepared_bytes() const {
  return state_->stack.prepared_bytes();
}

template <class Number>
std::int64_t Network<Number>::steps() const {
  return state_->stack.steps();
}

template <class Number>
StepBytes Network<Number>::bytes(std::int64_t) const {
  const Stack<Number>& stack = state_->stack;
  return {stack.state_bytes(), stack.tape_bytes(), stack.adjoint_bytes(), stack.scratch_bytes()};
}

template <class Number>
void Network<Number>::begin() {
  state_->stack.prepare(state_->values.data(), state_->iteration);
  state_->stack.begin();
  std::ranges::fill(state_->gradient, Number{0});
  if (state_->loss != nullptr) state_->loss->begin();
}

template <class Number>
std::int64_t Network<Number>::advance(const StepSpan& span, std::byte* state, std::byte* scratch) {
  for (std::int64_t i = span.from; i < span.to; ++i) {
    state_->stack.forward(i, span.first, state, nullptr, scratch, *state_);
  }
  return span.to;
}

template <class Number>
void Network<Number>::record(const StepSpan& span, std::byte* state, const Tapes& tapes,
                             std::byte* scratch) {
  for (std::int64_t i = span.from; i < span.to; ++i) {
    state_->stack.forward(i, span.first, state, tapes.at(i - span.from), scratch, *state_);
  }
}

template <class Number>
void Network<Number>::reverse(std::int64_t from, std::int64_t to, const Tapes& tapes,
                              std::byte* adjoint, std::byte* scratch) {
  Stack<Number>& stack = state_->stack;
  if (to == steps()) {  // spikes after the last step have no gradient
    std::memset(adjoint + stack.state_bytes(), 0, at(stack.adjoint_bytes() - stack.state_bytes()));
  }
  for (std::int64_t i = to - 1; i >= from; --i) {
    stack.reverse(i, tapes.at(i - from), adjoint, scratch, state_->gradient.data(), *state_);
  }
  if (from > 0) return;
  stack.finish(state_->gradient.data());
  for (std::size_t l = 0; l < state_->of_spikes.size(); ++l) {
    std::vector<Number>& own = state_->of_spikes[l];
    if (own.empty()) continue;
    const std::byte* const found = adjoint + stack.of_spikes_at(static_cast<std::int64_t>(l));
    std::memcpy(own.data(), found, own.size() * sizeof(Number));
  }
}

template <class Number>
std::vector<FieldShape> Network<Number>::state_fields() const {
  constexpr Element element = sizeof(Number) == 8 ? Element::f64 : Element::f32;
  const Stack<Number>& stack = state_->stack;
  std::vector<FieldShape> fields;
  fields.reserve(stack.layers().size());
  for (std::size_t l = 0; l < stack.layers().size(); ++l) {
    fields.push_back({"layer " + std::to_string(l), element,
                      stack.fields_at(static_cast<std::int64_t>(l)),
                      stack.layers()[l].field_bytes()});
  }
  return fields;
}

template <class Number>
std::vector<Field> Network<Number>::parameters() {
  constexpr Element element = sizeof(Number) == 8 ? Element::f64 : Element::f32;
  std::vector<Field> fields;
  for (const NetworkParameter& own : state_->layout) {
    const std::span<Number> part = std::span(state_->values).subspan(at(own.offset), at(own.size));
    if (own.learns) fields.push_back({own.name, element, std::as_writable_bytes(part)});
  }
  return fields;
}

template <class Number>
std::vector<Field> Network<Number>::gradients() {
  constexpr Element element = sizeof(Number) == 8 ? Element::f64 : Element::f32;
  std::vector<Field> fields;
  for (const NetworkParameter& own : state_->layout) {
    const std::span<Number> part =
        std::span(state_->gradient).subspan(at(own.offset), at(own.size));
    if (own.learns) fields.push_back({own.name, element, std::as_writable_bytes(part)});
  }
  return fields;
}

template <class Number>
double Network<Number>::loss() const {
  return state_->loss == nullptr ? 0 : state_->loss->value();
}

template <class Number>
Bytes Network<Number>::callers_bytes() const {
  const State& s = *state_;
  Bytes patterns = 0;
  for (const Layer<Number>& layer : s.stack.layers()) {
    for (const Pattern* own : {layer.input_pattern(), layer.recurrent_pattern()}) {
      if (own != nullptr) patterns += vector_bytes(own->starts) + vector_bytes(own->columns);
    }
  }
  return patterns + static_cast<Bytes>((s.values.size() + s.gradient.size()) * sizeof(Number)) +
         s.stack.prepared_bytes() + s.values_in.bytes() + s.spikes.bytes() + s.outputs.bytes() +
         s.of_outputs.bytes() + s.of_inputs.bytes();
}

template class Network<float>;
template class Network<double>;

}  // namespace ebb
