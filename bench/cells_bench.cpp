// SPDX-License-Identifier: Apache-2.0
// One layer in one budget, forward and backward, as one JSON object: seconds, bytes, what the plan
// was, how fast a large product is here. bench/cells.py makes tables of it.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "ebb/core/bits.h"
#include "ebb/core/random.h"
#include "ebb/core/workers.h"
#include "ebb/device/packed.h"
#include "ebb/ebb.h"
#include "ebb/run/network.h"

namespace ebb::bench {
namespace {

struct Words {
  LayerOptions layer;
  std::int64_t steps = 200, batch = 32;
  double percent = 0;      // of plain bytes; 0: store_all
  std::int64_t chunk = 0;  // time steps of a tape; 0: the network chooses
  int threads = 2, repetitions = 3;
  double rate = 0;   // of input spikes; 0: inputs are numbers
  double scale = 0;  // of the weights; 0: until the layer fires at `rate` too
};

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// "VmRSS" or, since the last reset, the largest: "VmHWM".
Bytes resident(const std::string& which) {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;) {
    Bytes kib = 0;
    if (word == which + ":" && file >> kib) return kib * 1024;
  }
  return 0;
}
void reset_largest() { std::ofstream("/proc/self/clear_refs") << 5; }

// A network with its input and a gradient of 1 for every output.
class Layer {
 public:
  Layer(const Words& words, std::int64_t steps, double scale)
      : network_(options(words, steps)), row_(at(words.batch * words.layer.hidden), 1.F) {
    for (const NetworkParameter& own : network_.layout()) {
      if (!own.name.starts_with("weight") || scale == 1) continue;
      for (float& w : network_.values().subspan(at(own.offset), at(own.size))) {
        w *= static_cast<float>(scale);
      }
    }
    network_.set_output_gradient(
        {row_.size(), [this](std::int64_t) { return std::span<const float>(row_); }});
    if (words.rate > 0) {
      make_spikes(words, steps);
    } else {
      const Random random(2);
      values_.resize(at(steps * words.batch * words.layer.input));
      for (std::size_t i = 0; i < values_.size(); ++i) {
        values_[i] = static_cast<float>(random.normal(i));
      }
      network_.set_input({values_, at(words.batch * words.layer.input)});
    }
  }

  Network<float>& network() { return network_; }

 private:
  static NetworkOptions options(const Words& words, std::int64_t steps) {
    NetworkOptions options;
    options.time_steps = steps;
    options.batch = words.batch;
    options.layers = {words.layer};
    options.threads = words.threads;
    options.chunk = words.chunk;
    options.input_spikes = words.rate > 0;
    return options;
  }
  void make_spikes(const Words& words, std::int64_t steps) {
    const Random random(2);
    const std::int64_t row = words_of(words.layer.input);
    spikes_.resize(at(steps * words.batch * row));
    for (std::int64_t s = 0; s < steps * words.batch; ++s) {
      for (std::int64_t i = 0; i < words.layer.input; ++i) {
        const bool fires = random.uniform(at(s * words.layer.input + i)) < words.rate;
        spikes_[at(s * row + i / 64)] |= std::uint64_t{fires} << (i % 64);
      }
    }
    network_.set_spikes({spikes_, at(words.batch * row)});
  }

  Network<float> network_;
  std::vector<float> values_;
  std::vector<std::uint64_t> spikes_;
  std::vector<float> row_;
};

// Forward and backward, again and again.
class Iterations {
 public:
  Iterations(Layer& layer, RunOptions options)
      : run_(layer.network(), std::move(options)),
        states_(4, std::vector<std::byte>(at(layer.network().bytes(0).state))) {}

  double one() {
    const double start = now();
    run_.forward(states_[0], states_[1]);
    run_.backward(states_[2], states_[3]);
    return now() - start;
  }
  void forward() { run_.forward(states_[0], states_[1]); }
  Report report() const { return run_.report(); }

 private:
  Run run_;
  std::vector<std::vector<std::byte>> states_;
};

// Weights times what make the layer fire at the rate of its inputs.
double scale_for(const Words& words) {
  constexpr std::int64_t steps = 200;  // ten time constants of a membrane
  double low = 0.1, high = 1e4;
  for (int i = 0; i < 24; ++i) {
    const double scale = std::sqrt(low * high);
    Layer layer(words, std::min(words.steps, steps), scale);
    RunOptions options;
    options.strategy = "store_all";
    Iterations iterations(layer, options);
    iterations.forward();
    const double found = layer.network().activity();
    if (std::abs(std::log(found / words.rate)) < std::log(1.05)) return scale;
    (found < words.rate ? low : high) = scale;
  }
  return std::sqrt(low * high);
}

// Of the product of two large matrices, the best of five.
double flops_per_second(int threads) {
  constexpr std::int64_t size = 1024;
  Workers workers(threads);
  std::vector<float> a(size * size, 1.F), c(size * size);
  std::vector<float> packed(at(packed_size<float>(size, size)));
  pack(size, size, a.data(), size, 1, packed.data());
  double least = 1e9;
  for (int i = 0; i < 5; ++i) {
    const double start = now();
    workers.split(size, 48, [&](std::int64_t from, std::int64_t to) {
      for (std::int64_t row = from; row < to; row += 48) {
        packed_product(std::min<std::int64_t>(48, to - row), size, size, a.data() + row * size,
                       size, packed.data(), c.data() + row * size, size);
      }
    });
    least = std::min(least, now() - start);
  }
  return 2.0 * size * size * size / least;
}

Json measured(const Words& words) {
  const double scale = words.rate == 0 ? 1 : words.scale > 0 ? words.scale : scale_for(words);
  Layer layer(words, words.steps, scale);
  RunOptions options;
  const Bytes plain = layer.network().plain_bytes();
  if (words.percent > 0) {
    options.budget = static_cast<Bytes>(static_cast<double>(plain) * words.percent / 100);
  } else {
    options.strategy = "store_all";
  }
  const Bytes before = resident("VmRSS");
  reset_largest();
  Iterations iterations(layer, options);
  iterations.one();
  const Bytes largest = resident("VmHWM");
  std::vector<double> seconds;
  seconds.reserve(static_cast<std::size_t>(std::max(words.repetitions, 0)));
  for (int i = 0; i < words.repetitions; ++i) seconds.push_back(iterations.one());
  std::sort(seconds.begin(), seconds.end());
  const Report report = iterations.report();
  Json json;
  json["least_seconds"] = seconds.front();
  json["median_seconds"] = seconds[seconds.size() / 2];
  json["peak_bytes"] = report.measured.peak.front();
  json["resident_bytes"] = largest - before;
  json["plain_bytes"] = plain;
  json["budget_bytes"] = words.percent > 0 ? Json(options.budget) : Json(nullptr);
  json["strategy"] = report.strategy;
  json["chunk"] = layer.network().chunk();
  json["forwards_per_step"] =
      static_cast<double>(report.measured.forwards()) / static_cast<double>(report.measured.steps);
  json["activity"] = layer.network().activity();
  json["scale"] = scale;
  json["flops_per_second"] = flops_per_second(words.threads);
  return json;
}

}  // namespace
}  // namespace ebb::bench

int main(int argc, char** argv) {
  using namespace ebb;
  try {
    bench::Words words;
    LayerOptions& layer = words.layer;
    layer.input = layer.hidden = 128;
    CLI::App app("One layer in one budget, forward and backward");
    app.add_option("--cell", layer.cell)->capture_default_str();
    app.add_option("--steps", words.steps)->capture_default_str();
    app.add_option("--batch", words.batch)->capture_default_str();
    app.add_option("--input", layer.input)->capture_default_str();
    app.add_option("--hidden", layer.hidden)->capture_default_str();
    app.add_option("--recurrent-density", layer.recurrent_density)->capture_default_str();
    app.add_option("--surrogate", layer.surrogate);
    app.add_option("--sharpness", layer.sharpness);
    app.add_option("--gradient-threshold", layer.gradient_threshold);
    app.add_option("--rate", words.rate, "Inputs are spikes, at this rate");
    app.add_option("--scale", words.scale, "Of the weights; default: the layer fires at --rate");
    app.add_option("--percent", words.percent, "Of plain bytes; default store_all");
    app.add_option("--chunk", words.chunk, "Time steps of a tape; default: the network chooses");
    app.add_option("--threads", words.threads)->capture_default_str();
    app.add_option("--repetitions", words.repetitions)->capture_default_str();
    CLI11_PARSE(app, argc, argv);
    std::cout << bench::measured(words).dump() << '\n';
  } catch (const std::exception& error) {
    std::cerr << "cells_bench: " << error.what() << '\n';
    return 1;
  }
}
