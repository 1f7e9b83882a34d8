// SPDX-License-Identifier: Apache-2.0
#include "ebb/train/predict.h"

#include <algorithm>
#include <cmath>

#include "ebb/core/at.h"
#include "ebb/core/bits.h"
#include "ebb/core/clock.h"
#include "ebb/core/error.h"
#include "ebb/data/mapped_file.h"
#include "ebb/data/read_npy.h"
#include "ebb/train/forward.h"
#include "ebb/train/npy_output.h"

namespace ebb {
namespace {

constexpr const char* kOrigin = "save yours with numpy.save: [N,T,I], or [T,I] for one sequence";

// What a file says it has, as [N,T,I].
struct Sequences {
  std::string name;
  NumberArray array;
  bool is_one = false;  // without N

  std::int64_t count() const { return array.shape[0]; }
  std::int64_t steps() const { return array.shape[1]; }
};

Sequences open_sequences(const TrainedModel& model, const std::filesystem::path& path) {
  Sequences found{path.string(), map_npy(path, kOrigin)};
  std::vector<std::int64_t>& shape = found.array.shape;
  std::vector<std::int64_t>& strides = found.array.strides;
  const std::string given = shape_text(shape);
  const std::int64_t inputs = model.shape.inputs;
  if (shape.size() == 2 && shape[1] == inputs) {
    found.is_one = true;
    shape.insert(shape.begin(), 1);
    strides.insert(strides.begin(), 0);
  } else if (shape.size() == 2 && inputs == 1) {
    shape.push_back(1);
    strides.push_back(0);
  }
  if (shape.size() != 3 || shape[2] != inputs || shape[0] == 0 || shape[1] == 0) {
    fail(ErrorCode::invalid_argument, found.name, " is ", given, "; ", model.name, " reads [N,T,",
         inputs, "], or [T,", inputs, "] for one sequence, N and T 1 or more");
  }
  return found;
}

// A block of inputs: sequences [first,first+B) and time steps [from,from+K) as rows of [K,B,I].
template <class Number>
class InputBlock {
 public:
  InputBlock(const Sequences& from, bool spikes, std::int64_t batch, std::int64_t block)
      : from_(from), spikes_(spikes), batch_(batch) {
    const std::int64_t inputs = from.array.shape[2];
    width_ = spikes ? batch * words_of(inputs) : batch * inputs;
    values_.resize(spikes ? 0 : at(block * width_));
    words_.resize(spikes ? at(block * width_) : 0);
  }

  void give_to(Network<Number>& network) const {
    if (spikes_) {
      network.set_spikes({std::span(words_), at(width_)});
    } else {
      network.set_input({std::span(values_), at(width_)});
    }
  }

  // Beyond the last sequence and the last time step there are zeros.
  void fill(std::int64_t first, std::int64_t from, std::int64_t block) {
    std::ranges::fill(values_, Number{0});
    std::ranges::fill(words_, 0);
    const std::int64_t sequences = std::min(batch_, from_.count() - first);
    const std::int64_t steps = std::min(block, from_.steps() - from);
    with_numbers(from_.array, [&](const auto& numbers) {
      for (std::int64_t b = 0; b < sequences; ++b) {
        for (std::int64_t t = 0; t < steps; ++t) fill_row(numbers, first, b, from, t);
      }
    });
    forget(from_.array.data);
  }

 private:
  template <class Numbers>
  void fill_row(const Numbers& numbers, std::int64_t first, std::int64_t b, std::int64_t from,
                std::int64_t t) {
    const std::vector<std::int64_t>& strides = from_.array.strides;
    const std::int64_t inputs = from_.array.shape[2];
    const std::int64_t row = (first + b) * strides[0] + (from + t) * strides[1];
    for (std::int64_t i = 0; i < inputs; ++i) {
      const auto number = numbers[at(row + i * strides[2])];
      const bool good =
          spikes_ ? number == 0 || number == 1 : std::isfinite(static_cast<float>(number));
      if (!good) {
        fail(ErrorCode::invalid_argument, from_.name, ": sequence ", first + b, ", step ", from + t,
             ", input ", i, " is ", number,
             spikes_ ? "; spikes are 0 or 1" : "; it must be finite");
      }
      if (!spikes_) {
        values_[at(t * width_ + b * inputs + i)] = static_cast<Number>(static_cast<float>(number));
      } else if (number != 0) {
        words_[at(t * width_ + b * words_of(inputs) + i / 64)] |= std::uint64_t{1} << (i % 64);
      }
    }
  }

  const Sequences& from_;
  bool spikes_;
  std::int64_t batch_, width_ = 0;
  std::vector<Number> values_;
  std::vector<std::uint64_t> words_;
};

// Takes blocks of outputs [K,B,O] to the file, those of each sequence together.
template <class Number>
class OutputBlock {
 public:
  OutputBlock(const Sequences& of, std::int64_t outputs, std::int64_t batch, std::int64_t block,
              bool every_step, const PredictOptions& options)
      : of_(of),
        outputs_(outputs),
        batch_(batch),
        every_step_(every_step),
        classes_(options.classes),
        rows_(at(block * batch * outputs)),
        file_(options.out,
              options.classes       ? "<i8"
              : sizeof(Number) == 4 ? "<f4"
                                    : "<f8",
              options.classes ? sizeof(std::int64_t) : sizeof(Number), shape()) {}

  std::vector<std::int64_t> shape() const {
    std::vector<std::int64_t> shape;
    if (!of_.is_one) shape.push_back(of_.count());
    if (every_step_) shape.push_back(of_.steps());
    if (!classes_) shape.push_back(outputs_);
    return shape;
  }
  void take_from(Network<Number>& network) {
    network.set_output({std::span(rows_), at(batch_ * outputs_)});
  }

  // Of sequences from `first` on, time steps from `from` on.
  void write(std::int64_t first, std::int64_t from, std::int64_t block) {
    const std::int64_t sequences = std::min(batch_, of_.count() - first);
    const std::int64_t end = std::min(from + block, of_.steps());
    const std::int64_t begin = every_step_ ? from : of_.steps() - 1;
    if (begin >= end) return;
    for (std::int64_t b = 0; b < sequences; ++b) {
      numbers_.clear();
      best_.clear();
      for (std::int64_t t = begin; t < end; ++t) {
        const auto row = rows_.begin() + ((t - from) * batch_ + b) * outputs_;
        if (classes_) {
          best_.push_back(std::max_element(row, row + outputs_) - row);
        } else {
          numbers_.insert(numbers_.end(), row, row + outputs_);
        }
      }
      const std::int64_t place = every_step_ ? (first + b) * of_.steps() + begin : first + b;
      if (classes_) {
        file_.write(place, std::as_bytes(std::span(best_)));
      } else {
        file_.write(place * outputs_, std::as_bytes(std::span(numbers_)));
      }
    }
  }
  void finish() { file_.finish(); }

 private:
  const Sequences& of_;
  std::int64_t outputs_, batch_;
  bool every_step_, classes_;
  std::vector<Number> rows_, numbers_;
  std::vector<std::int64_t> best_;
  NpyOutput file_;
};

// Of some 2^18 numbers at a time.
std::int64_t block_of(const TrainedModel& model, std::int64_t batch, std::int64_t steps) {
  const std::int64_t row = batch * (model.shape.inputs + model.shape.outputs);
  return std::min(steps, std::clamp<std::int64_t>((1 << 18) / row, 1, 256));
}

template <class Number>
PredictResult predict_as(const TrainedModel& model, const PredictOptions& options) {
  const double began = seconds_now();
  std::error_code ignored;
  if (std::filesystem::equivalent(options.data, options.out, ignored)) {
    fail(ErrorCode::invalid_argument, "'", options.out.string(),
         "' is what is to be read; name another file for the predictions");
  }
  const Sequences sequences = open_sequences(model, options.data);
  const std::int64_t count = sequences.count(), steps = sequences.steps();
  const std::int64_t batch =
      std::min(count, options.batch > 0 ? options.batch : model.options.batch);
  const std::int64_t block = block_of(model, batch, steps);
  Forward<Number> net(model, batch, block, options.threads);
  InputBlock<Number> input(sequences, model.shape.spikes, batch, block);
  OutputBlock<Number> output(sequences, model.shape.outputs, batch, block,
                             options.every_step.value_or(model.shape.every_step), options);
  input.give_to(net.network());
  output.take_from(net.network());
  const std::vector<std::int64_t> lengths(at(batch), steps);
  for (std::int64_t first = 0; first < count; first += batch) {
    net.start(lengths);
    while (net.first() < steps) {
      if (options.stop.stop_requested()) fail(ErrorCode::cancelled, "stopped");
      const std::int64_t from = net.first();
      input.fill(first, from, block);
      net.advance();
      output.write(first, from, block);
    }
  }
  output.finish();
  PredictResult result;
  result.shape = output.shape();
  result.dtype = options.classes ? "int64" : sizeof(Number) == 4 ? "float32" : "float64";
  result.seconds = seconds_now() - began;
  return result;
}

}  // namespace

PredictResult predict(const TrainedModel& model, const PredictOptions& options) {
  if (options.classes && !model.shape.classes) {
    fail(ErrorCode::invalid_argument, model.name,
         " was trained to predict numbers: it has no classes");
  }
  return model.options.dtype == "double" ? predict_as<double>(model, options)
                                         : predict_as<float>(model, options);
}

}  // namespace ebb
