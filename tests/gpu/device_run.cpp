// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/device_run.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ebb/core/error.h"
#include "ebb/core/half_math.h"
#include "ebb/core/random.h"
#include "ebb/device/device_memory.h"
#include "ebb/run/run.h"

namespace ebb::test {
namespace {

bool is_float(const std::string& number) { return number == "tf32" || number == "f32"; }

}  // namespace

std::vector<std::byte> as_number(const std::vector<float>& from, const std::string& number) {
  std::vector<std::byte> bytes(from.size() * (is_float(number) ? 4 : 2));
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (is_float(number)) {
      std::memcpy(&bytes[4 * i], &from[i], 4);
    } else {
      const std::uint16_t half = number == "bf16" ? to_bf16(from[i]) : to_fp16(from[i]);
      std::memcpy(&bytes[2 * i], &half, 2);
    }
  }
  return bytes;
}

namespace {

std::vector<float> as_floats(const std::vector<std::byte>& from, const std::string& number) {
  std::vector<float> floats(from.size() / (is_float(number) ? 4 : 2));
  for (std::size_t i = 0; i < floats.size(); ++i) {
    if (is_float(number)) {
      std::memcpy(&floats[i], &from[4 * i], 4);
    } else {
      std::uint16_t half = 0;
      std::memcpy(&half, &from[2 * i], 2);
      floats[i] = number == "bf16" ? from_bf16(half) : from_fp16(half);
    }
  }
  return floats;
}

// Of an array over time in the network's number.
class OverTime {
 public:
  OverTime(std::string number, std::size_t count)
      : number_(std::move(number)),
        memory_(static_cast<Bytes>(count * (is_float(number_) ? 4 : 2))) {}
  OverTime(const std::string& number, const std::vector<float>& from)
      : OverTime(number, from.size()) {
    memory_.upload(as_number(from, number));
  }
  void* data() { return memory_.data(); }
  std::vector<float> floats() const {
    std::vector<std::byte> bytes(static_cast<std::size_t>(memory_.size()));
    memory_.download(bytes);
    return as_floats(bytes, number_);
  }

 private:
  std::string number_;
  DeviceMemory memory_;
};

class Floats {
 public:
  explicit Floats(std::size_t count) : memory_(static_cast<Bytes>(4 * count)) {}
  explicit Floats(const std::vector<float>& from) : Floats(from.size()) { memory_.upload(from); }
  float* data() { return reinterpret_cast<float*>(memory_.data()); }
  std::vector<float> floats() const {
    std::vector<float> all(static_cast<std::size_t>(memory_.size() / 4));
    memory_.download(all);
    return all;
  }

 private:
  DeviceMemory memory_;
};

// Every other unit of an rnn_relu never passes anything, the others always do: rounding then makes none of them change sides, where
// the derivative jumps.
void keep_from_kinks(const Network<float>& net, DeviceData& data) {
  for (const NetworkParameter& own : net.layout()) {
    auto value = data.parameters.begin() + own.offset;
    for (const std::int64_t row : rows_of(net, own)) {
      *value = 0.125F * (row % 2 == 0 ? std::abs(*value) : -std::abs(*value));
      ++value;
    }
  }
  for (std::vector<float>* const all : {&data.x, &data.initial}) {
    for (float& value : *all) value = std::abs(value);
  }
}

// The same of an egru: every other unit is always heard, the others never. c stays below 2.
void keep_from_events(const std::vector<NetworkParameter>& layout, DeviceData& data) {
  for (const NetworkParameter& own : layout) {
    if (!own.name.starts_with("threshold")) continue;
    for (std::int64_t i = 0; i < own.size; ++i) {
      float& value = data.parameters[static_cast<std::size_t>(own.offset + i)];
      value = (i % 2 == 0 ? -3.F : 3.F) + value;
    }
  }
}

bool spikes(const DeviceNetworkOptions& options) {
  return options.layers.front().cell.ends_with("lif");
}

bool has_readout(const DeviceNetworkOptions& options) {
  return options.layers.back().cell == "linear" || options.layers.back().cell == "leaky";
}

// Of outputs.
std::string given_out(const DeviceNetworkOptions& options) {
  return has_readout(options) ? "f32" : options.number;
}

// Units that fire now and then.
void let_fire(const std::vector<NetworkParameter>& layout, DeviceData& data) {
  for (const NetworkParameter& own : layout) {
    for (std::int64_t i = 0; i < own.size; ++i) {
      float& value = data.parameters[static_cast<std::size_t>(own.offset + i)];
      if (own.name.starts_with("threshold")) value = 0.05F + 0.1F * std::abs(value);
      if (own.name.starts_with("tau")) value = 4 + 10 * std::abs(value);
    }
  }
}

std::int64_t state_of(const DeviceNetworkOptions& options) {
  std::int64_t floats = 0;
  for (const LayerOptions& layer : options.layers) {
    if (layer.cell == "linear") continue;
    const std::int64_t fields =
        layer.cell == "alif" || layer.cell == "adlif"                         ? 3
        : layer.cell == "lstm" || layer.cell == "lif" || layer.cell == "egru" ? 2
                                                                              : 1;
    floats += fields * options.batch * layer.hidden;
  }
  return floats;
}

std::vector<float> to_floats(const std::vector<double>& from) { return {from.begin(), from.end()}; }
std::vector<double> to_doubles(const std::vector<float>& from) {
  return {from.begin(), from.end()};
}

}  // namespace

Network<float> network_of(const DeviceNetworkOptions& options) {
  NetworkOptions same;
  same.time_steps = options.time_steps;
  same.batch = options.batch;
  same.layers = options.layers;
  same.seed = options.seed;
  return Network<float>(same);
}

std::vector<std::int64_t> rows_of(const Network<float>& net, const NetworkParameter& own) {
  std::vector<std::int64_t> rows;
  const std::int64_t layer = own.name.back() - '0';
  const Pattern* pattern = nullptr;
  if (own.name.starts_with("weight_ih")) pattern = net.input_pattern(layer);
  if (own.name.starts_with("weight_hh")) pattern = net.recurrent_pattern(layer);
  for (std::int64_t i = 0; i < own.size; ++i) {
    rows.push_back(pattern == nullptr ? i / (own.size / own.shape.front())
                                      : std::ranges::upper_bound(pattern->starts, i) -
                                            pattern->starts.begin() - 1);
  }
  return rows;
}

std::vector<float> made_up(std::int64_t count, float scale, const std::string& number,
                           std::uint64_t seed) {
  const Random random(seed, 0);
  std::vector<float> found(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < found.size(); ++i)
    found[i] = scale * static_cast<float>(2 * random.uniform(i) - 1);
  if (is_float(number)) return found;
  return as_floats(as_number(found, number), number);
}

Bytes least_budget_of(DeviceNetworkOptions options) {
  options.budget = 1;
  try {
    device_plan(options);
  } catch (const Error& error) {
    return error.least_budget().value();
  }
  return options.budget;
}

DeviceData device_data(const DeviceNetworkOptions& options) {
  const std::int64_t rows = options.time_steps * options.batch, state = state_of(options);
  DeviceData data;
  const Network<float> net = network_of(options);
  const std::vector<NetworkParameter>& layout = net.layout();
  data.parameters = made_up(layout.back().offset + layout.back().size, 0.3F, options.number, 1);
  data.x = made_up(rows * options.layers.front().input, 1, options.number, 2);
  data.of_y = made_up(rows * options.layers.back().hidden, 1, options.number, 3);
  data.initial = made_up(state, 1, options.number, 4);
  data.of_final = made_up(state, 1, options.number, 5);
  if (options.layers.front().cell == "rnn_relu") keep_from_kinks(net, data);
  if (options.layers.front().cell == "egru") keep_from_events(layout, data);
  if (spikes(options)) let_fire(layout, data);
  if (spikes(options) || has_readout(options)) {  // the CPU's states are others
    std::ranges::fill(data.initial, 0.F);
    std::ranges::fill(data.of_final, 0.F);
  }
  return data;
}

DeviceResult run_on_device(DeviceNetwork& net, const DeviceNetworkOptions& options,
                           const DeviceData& data) {
  net.set_values(data.parameters);
  OverTime x(options.number, data.x), of_y(given_out(options), data.of_y);
  OverTime y(given_out(options), data.of_y.size()), of_x(options.number, data.x.size());
  Floats initial(data.initial), of_final(data.of_final);
  Floats final(data.initial.size()), of_initial(data.initial.size());
  net.forward(x.data(), y.data(), initial.data(), final.data());
  net.backward(of_y.data(), of_x.data(), of_final.data(), of_initial.data());
  DeviceResult found;
  found.gradient.resize(data.parameters.size());
  net.copy_gradient(found.gradient);
  found.y = y.floats();
  found.final = final.floats();
  found.of_x = of_x.floats();
  found.of_initial = of_initial.floats();
  return found;
}

DeviceResult run_on_cpu(const DeviceNetworkOptions& options, const DeviceData& data) {
  NetworkOptions same;
  same.time_steps = options.time_steps;
  same.batch = options.batch;
  same.layers = options.layers;
  same.input_gradient = true;
  Network<double> net(same);
  std::ranges::copy(data.parameters, net.values().begin());
  const std::vector<double> x = to_doubles(data.x), of_y = to_doubles(data.of_y);
  std::vector<double> y(of_y.size()), of_x(x.size());
  const auto in = static_cast<std::size_t>(net.batch() * net.inputs());
  const auto out = static_cast<std::size_t>(net.batch() * net.outputs());
  net.set_input({std::span(x), in});
  net.set_output({std::span(y), out});
  net.set_output_gradient({std::span(of_y), out});
  net.set_input_gradient({std::span(of_x), in});
  Run run(net, {});
  DeviceResult found;
  std::vector<double> final, of_initial;
  if (spikes(options) || has_readout(options)) {
    const std::vector<std::byte> zeros(static_cast<std::size_t>(net.bytes(0).state));
    std::vector<std::byte> after(zeros.size()), before(zeros.size());
    run.forward(zeros, after);
    run.backward(zeros, before);
  } else {
    const std::vector<double> initial = to_doubles(data.initial),
                              of_final = to_doubles(data.of_final);
    final.resize(initial.size());
    of_initial.resize(initial.size());
    run.forward(initial, final);
    run.backward(of_final, of_initial);
  }
  found.y = to_floats(y);
  found.final = to_floats(final);
  found.of_x = to_floats(of_x);
  found.of_initial = to_floats(of_initial);
  found.gradient.assign(net.gradient().begin(), net.gradient().end());
  return found;
}

}  // namespace ebb::test
