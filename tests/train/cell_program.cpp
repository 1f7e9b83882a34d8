// SPDX-License-Identifier: Apache-2.0
// For tests/python/test_cells.py, which compares with PyTorch:
//   cell_program IN.safetensors OUT.safetensors
// IN's note "options" is what options_from_json reads, where the readout may also be "none". IN holds
// "inputs" [T,B,I] (u8: spikes) and "output_gradients" [T,B,O], and may hold parameters under their
// names, "lengths" [B], and for each layer its fields [B,F,H] as "state_l0" and the gradient of those
// at the end as "state_gradient_l0". OUT gets "outputs", all parameters and patterns, the states at the
// end, and under NAME.gradient the gradients of parameters, inputs and the states at the beginning.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <list>
#include <span>
#include <string>
#include <vector>

#include "ebb/core/bits.h"
#include "ebb/core/error.h"
#include "ebb/train/batch_run.h"
#include "ebb/train/safetensors.h"

namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

const ebb::TensorView* find(const ebb::Safetensors& given, const std::string& name) {
  for (const ebb::TensorView& tensor : given.tensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

template <class Number>
std::vector<Number> numbers_of(const ebb::TensorView& tensor) {
  std::int64_t size = 1;
  for (const std::int64_t extent : tensor.shape) size *= extent;
  std::vector<Number> numbers(at(size));
  ebb::copy_tensor(tensor, std::span(numbers));
  return numbers;
}

ebb::NetworkOptions net_of(const ebb::TrainOptions& options, const ebb::Safetensors& given) {
  const ebb::TensorView& inputs = ebb::find_tensor(given.tensors, "inputs");
  ebb::TaskShape shape;
  shape.steps = inputs.shape.at(0);
  shape.inputs = inputs.shape.at(2);
  shape.outputs = ebb::find_tensor(given.tensors, "output_gradients").shape.at(2);
  shape.spikes = inputs.type == ebb::TensorType::u8;
  ebb::NetworkOptions net = ebb::network_of(options, shape, 0, 1);
  if (options.readout == "none") net.layers.pop_back();
  net.batch = inputs.shape.at(1);
  net.input_gradient = true;
  return net;
}

template <class Number>
class Cells {
 public:
  Cells(const ebb::TrainOptions& options, const ebb::Safetensors& given)
      : options_(options), given_(given), net_(net_of(options, given)) {
    for (const ebb::NetworkParameter& own : net_.layout()) {
      const ebb::TensorView* const tensor = find(given, own.name);
      if (tensor == nullptr) continue;
      ebb::copy_tensor(*tensor, net_.values().subspan(at(own.offset), at(own.size)));
    }
    set_input();
    if (const auto* const lengths = find(given, "lengths")) {
      lengths_ = numbers_of<std::int64_t>(*lengths);
      net_.set_lengths(lengths_);
    }
    const std::size_t row = at(net_.batch() * net_.outputs());
    of_outputs_ = numbers_of<Number>(ebb::find_tensor(given.tensors, "output_gradients"));
    outputs_.resize(of_outputs_.size());
    net_.set_output({std::span(outputs_), row});
    net_.set_output_gradient({std::span<const Number>(of_outputs_), row});
    for (auto* state : {&initial_, &final_, &adjoint_, &of_initial_}) {
      state->resize(at(net_.bytes(0).state));
    }
    set_states("state_l", initial_);
    set_states("state_gradient_l", adjoint_);
  }

  void run() {
    ebb::RunOptions options;
    options.budget = ebb::budget_bytes(options_, net_.plain_bytes());
    options.strategy = options_.strategy;
    ebb::StepCost cost;
    cost.forward = cost.record = 1;
    cost.backward = 2;
    options.chain = ebb::Chain::uniform(net_.steps(), cost);
    options.platform = ebb::Platform{};
    ebb::Run run(net_, options);
    run.forward(initial_, final_);
    run.backward(adjoint_, of_initial_);
    strategy_ = run.plan().strategy;
  }

  void write(std::ostream& to) {
    add("outputs", {net_.time_steps(), net_.batch(), net_.outputs()}, outputs_);
    add("inputs.gradient", {net_.time_steps(), net_.batch(), net_.inputs()}, of_inputs_);
    for (const ebb::NetworkParameter& own : net_.layout()) {
      const std::span<const Number> gradient = net_.gradient();
      add(own.name, own.shape, net_.values().subspan(at(own.offset), at(own.size)));
      add(own.name + ".gradient", own.shape, gradient.subspan(at(own.offset), at(own.size)));
    }
    const auto fields = net_.state_fields();
    for (std::size_t l = 0; l < fields.size(); ++l) {
      const std::string name = "state_l" + std::to_string(l);
      add(name, {fields[l].bytes / ebb::Bytes{sizeof(Number)}}, part(final_, fields[l]));
      add(name + ".gradient", {fields[l].bytes / ebb::Bytes{sizeof(Number)}},
          part(of_initial_, fields[l]));
      const std::string layer = "_l" + std::to_string(l);
      add("weight_ih" + layer, net_.input_pattern(static_cast<std::int64_t>(l)));
      add("weight_hh" + layer, net_.recurrent_pattern(static_cast<std::int64_t>(l)));
    }
    const ebb::TensorNotes notes = {{"strategy", strategy_},
                                    {"steps", std::to_string(net_.steps())},
                                    {"activity", std::to_string(net_.activity())}};
    ebb::write_safetensors(tensors_, notes, [&to](std::span<const std::byte> piece) {
      to.write(reinterpret_cast<const char*>(piece.data()),
               static_cast<std::streamsize>(piece.size()));
    });
  }

 private:
  void set_input() {
    const ebb::TensorView& tensor = ebb::find_tensor(given_.tensors, "inputs");
    const std::int64_t width = net_.batch() * net_.inputs();
    of_inputs_.resize(at(net_.time_steps() * width));
    net_.set_input_gradient({std::span(of_inputs_), at(width)});
    if (tensor.type != ebb::TensorType::u8) {
      inputs_ = numbers_of<Number>(tensor);
      net_.set_input({std::span<const Number>(inputs_), at(width)});
      return;
    }
    const auto ones = numbers_of<std::uint8_t>(tensor);
    const std::int64_t rows = net_.time_steps() * net_.batch();
    const std::int64_t words = ebb::words_of(net_.inputs());
    spikes_.resize(at(rows * words));
    for (std::int64_t r = 0; r < rows; ++r) {
      ebb::pack_bits(ones.data() + r * net_.inputs(), net_.inputs(), spikes_.data() + r * words);
    }
    net_.set_spikes({std::span<const std::uint64_t>(spikes_), at(net_.batch() * words)});
  }

  void set_states(const std::string& name, std::vector<std::byte>& states) {
    const auto fields = net_.state_fields();
    for (std::size_t l = 0; l < fields.size(); ++l) {
      const ebb::TensorView* const tensor = find(given_, name + std::to_string(l));
      if (tensor == nullptr) continue;
      const auto numbers = numbers_of<Number>(*tensor);
      if (static_cast<ebb::Bytes>(numbers.size() * sizeof(Number)) != fields[l].bytes) {
        ebb::fail(ebb::ErrorCode::invalid_argument, tensor->name, " has ", numbers.size(),
                  " numbers; it must have ", fields[l].bytes / ebb::Bytes{sizeof(Number)});
      }
      std::memcpy(states.data() + fields[l].offset, numbers.data(), at(fields[l].bytes));
    }
  }
  static std::vector<Number> part(const std::vector<std::byte>& state,
                                  const ebb::FieldShape& field) {
    std::vector<Number> numbers(at(field.bytes) / sizeof(Number));
    std::memcpy(numbers.data(), state.data() + field.offset, at(field.bytes));
    return numbers;
  }

  template <class Numbers>
  void add(const std::string& name, std::vector<std::int64_t> shape, const Numbers& numbers) {
    kept_.emplace_back(numbers.begin(), numbers.end());
    tensors_.push_back(ebb::view_tensor<Number>(name, std::move(shape), kept_.back()));
  }
  void add(const std::string& name, const ebb::Pattern* pattern) {
    if (pattern == nullptr) return;
    const auto starts = static_cast<std::int64_t>(pattern->starts.size());
    const auto columns = static_cast<std::int64_t>(pattern->columns.size());
    tensors_.push_back(ebb::view_tensor<std::int64_t>(name + ".starts", {starts}, pattern->starts));
    tensors_.push_back(
        ebb::view_tensor<std::int32_t>(name + ".columns", {columns}, pattern->columns));
  }

  const ebb::TrainOptions& options_;
  const ebb::Safetensors& given_;
  ebb::Network<Number> net_;
  std::vector<Number> inputs_, of_inputs_, outputs_, of_outputs_;
  std::vector<std::uint64_t> spikes_;
  std::vector<std::int64_t> lengths_;
  std::vector<std::byte> initial_, final_, adjoint_, of_initial_;
  std::string strategy_;
  std::list<std::vector<Number>> kept_;
  std::vector<ebb::TensorView> tensors_;
};

template <class Number>
void run(const ebb::TrainOptions& options, const ebb::Safetensors& given, std::ostream& to) {
  Cells<Number> cells(options, given);
  cells.run();
  cells.write(to);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  try {
    const std::string file = content(words.at(0));
    const ebb::Safetensors given =
        ebb::read_safetensors(std::as_bytes(std::span(file)), words.at(0));
    const ebb::TrainOptions options = ebb::options_from_json(given.notes.at("options"), "options");
    std::ofstream to(words.at(1), std::ios::binary);
    (options.dtype == "double" ? run<double> : run<float>)(options, given, to);
    to.close();
    if (!to) ebb::fail(ebb::ErrorCode::io, "cannot write ", words.at(1));
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  return 0;
}
