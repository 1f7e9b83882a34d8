// SPDX-License-Identifier: Apache-2.0
#include "ebb/train/sample.h"

#include <algorithm>
#include <cmath>

#include "ebb/core/at.h"
#include "ebb/core/bits.h"
#include "ebb/core/error.h"
#include "ebb/core/random.h"
#include "ebb/train/forward.h"

namespace ebb {
namespace {

// The classes of a text's bytes.
std::vector<std::size_t> classes_of(const TrainedModel& model, std::string text) {
  if (text.empty()) {
    text = model.symbols.find('\n') == std::string::npos ? model.symbols.substr(0, 1) : "\n";
  }
  std::vector<std::size_t> classes;
  for (std::size_t i = 0; i < text.size(); ++i) {
    classes.push_back(model.symbols.find(text[i]));
    if (classes.back() != std::string::npos) continue;
    fail(ErrorCode::invalid_argument, "byte ", i, " of the text is ",
         int{static_cast<unsigned char>(text[i])}, ", which the text of the training did not have");
  }
  return classes;
}

// As likely as softmax of the outputs divided by the temperature.
template <class Number>
std::size_t drawn(std::span<const Number> outputs, double temperature, double uniform) {
  const auto likeliest = std::ranges::max_element(outputs);
  const auto best = static_cast<std::size_t>(likeliest - outputs.begin());
  if (temperature == 0) return best;
  const auto share = [&](Number output) {
    return std::exp(static_cast<double>(output - *likeliest) / temperature);
  };
  double sum = 0;
  for (const Number output : outputs) sum += share(output);
  double left = uniform * sum;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    left -= share(outputs[i]);
    if (left < 0) return i;
  }
  return best;  // rounding took the last share
}

template <class Number>
void sample_as(const TrainedModel& model, const SampleOptions& options,
               const std::function<void(char)>& sink) {
  const std::vector<std::size_t> prompt = classes_of(model, options.text);
  Forward<Number> net(model, 1, 1, options.threads);
  std::vector<std::uint64_t> words(at(words_of(model.shape.inputs)));
  std::vector<Number> outputs(at(model.shape.outputs));
  net.network().set_spikes({std::span<const std::uint64_t>(words), words.size()});
  net.network().set_output({std::span(outputs), outputs.size()});
  const auto length = static_cast<std::int64_t>(prompt.size()) + options.length;
  net.start(std::vector{length});
  const Random random(options.seed);
  const auto hear = [&](std::size_t heard) {
    if (options.stop.stop_requested()) fail(ErrorCode::cancelled, "stopped");
    std::ranges::fill(words, 0);
    words[heard / 64] = std::uint64_t{1} << (heard % 64);
    net.advance();
  };
  for (const std::size_t heard : prompt) hear(heard);
  for (std::int64_t i = 0; i < options.length; ++i) {
    const std::size_t next = drawn(std::span<const Number>(outputs), options.temperature,
                                   random.uniform(static_cast<std::uint64_t>(i)));
    sink(model.symbols[next]);
    if (i + 1 < options.length) hear(next);
  }
}

}  // namespace

void sample(const TrainedModel& model, const SampleOptions& options,
            const std::function<void(char)>& sink) {
  if (model.symbols.empty() || !model.shape.spikes || model.shape.inputs != model.shape.outputs) {
    fail(ErrorCode::invalid_argument, model.name, " was trained on the task '", model.options.task,
         "'; only nets trained on the task 'text' continue a text");
  }
  if (!(options.temperature >= 0) || !std::isfinite(options.temperature)) {
    fail(ErrorCode::invalid_argument, "temperature is ", options.temperature,
         "; it must be 0 or more");
  }
  if (options.length < 0) {
    fail(ErrorCode::invalid_argument, "length is ", options.length, "; it must be 0 or more");
  }
  if (model.options.dtype == "double") {
    sample_as<double>(model, options, sink);
  } else {
    sample_as<float>(model, options, sink);
  }
}

}  // namespace ebb
