// SPDX-License-Identifier: Apache-2.0
// The user's own arrays. Inputs that are bool become spikes, all others numbers. What lies beyond a
// sequence's length does not count.
#include <algorithm>
#include <array>

#include "ebb/core/error.h"
#include "ebb/data/npy_set.h"
#include "ebb/data/task_parts.h"
#include "ebb/data/whole_file.h"

namespace ebb {
namespace {

std::string shape_words(const TaskShape& shape) {
  return std::to_string(shape.steps) + " steps of " + std::to_string(shape.inputs) +
         (shape.spikes ? " spikes" : " numbers") +
         (shape.classes ? " and classes" : " and " + std::to_string(shape.outputs) + " targets") +
         (shape.every_step ? " at every step" : " at the end");
}

class Npy final : public Task {
 public:
  explicit Npy(const TaskOptions& options) {
    const bool test_alone = options.only == Split::test;
    sets_[0] = test_alone ? NpySet{} : read_npy_set(options.data, "train");
    if (test_alone || is_there(options.data / "x_test.npy") ||
        is_there(options.data / "y_test.npy")) {
      sets_[1] = read_npy_set(options.data, "test");
    }
    shape_ = sets_[test_alone ? 1 : 0].shape;
    if (sets_[1].samples() > 0) {
      TaskShape test = sets_[1].shape;
      if (test.classes && shape_.classes) {
        shape_.outputs = test.outputs = std::max(shape_.outputs, test.outputs);
      }
      if (shape_words(test) != shape_words(shape_)) {
        fail(ErrorCode::invalid_argument, options.data.string(), ": training sequences have ",
             shape_words(shape_), ", test sequences ", shape_words(test));
      }
    }
    if (shape_.outputs == 0) {
      fail(ErrorCode::invalid_argument, options.data.string(), ": every class is -1");
    }
    shape_.steps = steps_of(options, shape_.steps, 1, shape_.steps);
  }

  TaskShape shape() const override { return shape_; }
  // Arrays stay in their files.
  Bytes bytes() const override {
    Bytes bytes = 0;
    for (const NpySet& set : sets_) bytes += vector_bytes(set.lengths);
    return bytes;
  }
  std::int64_t samples(Split split) const override { return sets_[index_of(split)].samples(); }
  void fill(Split split, std::span<const std::int64_t> samples, Batch& batch) const override {
    begin_batch(*this, split, samples, batch);
    const NpySet& set = sets_[index_of(split)];
    for (std::size_t b = 0; b < samples.size(); ++b) {
      const Slot slot{.set = set,
                      .sample = samples[b],
                      .b = b,
                      .batch = samples.size(),
                      .length = length_of(set, samples[b])};
      with_numbers(set.inputs, [&](auto numbers) { fill_inputs(slot, numbers, batch); });
      with_numbers(set.wanted, [&](auto numbers) { fill_wanted(slot, numbers, batch); });
      if (!set.lengths.empty()) batch.lengths.push_back(slot.length);
    }
  }

 private:
  struct Slot {
    const NpySet& set;
    std::int64_t sample;
    std::size_t b;
    std::size_t batch;
    std::int64_t length;
  };

  std::int64_t length_of(const NpySet& set, std::int64_t sample) const {
    if (set.lengths.empty()) return shape_.steps;
    return std::min(set.lengths[static_cast<std::size_t>(sample)], shape_.steps);
  }

  template <class Numbers>
  void fill_inputs(const Slot& slot, const Numbers& numbers, Batch& batch) const {
    const auto inputs = static_cast<std::size_t>(shape_.inputs);
    const auto words = static_cast<std::size_t>(words_of(shape_.inputs));
    const std::vector<std::int64_t>& strides = slot.set.inputs.strides;
    const auto next = static_cast<std::size_t>(strides[2]);
    for (std::int64_t t = 0; t < slot.length; ++t) {
      const auto from = static_cast<std::size_t>(slot.sample * strides[0] + t * strides[1]);
      if (shape_.spikes) {
        const std::span<std::uint64_t> to =
            std::span(batch.spikes).subspan(place(t, slot.b, slot.batch, words), words);
        for (std::size_t i = 0; i < inputs; ++i) {
          if (numbers[from + i * next] != 0) set_spike(to, i);
        }
      } else {
        float* const to = &batch.values[place(t, slot.b, slot.batch, inputs)];
        for (std::size_t i = 0; i < inputs; ++i)
          to[i] = static_cast<float>(numbers[from + i * next]);
      }
    }
  }

  template <class Numbers>
  void fill_wanted(const Slot& slot, const Numbers& numbers, Batch& batch) const {
    const std::size_t width = shape_.classes ? 1 : static_cast<std::size_t>(shape_.outputs);
    const std::vector<std::int64_t>& strides = slot.set.wanted.strides;
    for (std::int64_t t = 0; t < (shape_.every_step ? slot.length : 1); ++t) {
      const auto from =
          static_cast<std::size_t>(slot.sample * strides[0] + (t > 0 ? t * strides[1] : 0));
      const std::size_t to = place(t, slot.b, slot.batch, width);
      for (std::size_t o = 0; o < width; ++o) {
        const auto number = numbers[from + o * static_cast<std::size_t>(strides.back())];
        if (shape_.classes) {
          batch.classes[to + o] = static_cast<std::int32_t>(number);
        } else {
          batch.targets[to + o] = static_cast<float>(number);
        }
      }
    }
  }

  TaskShape shape_;
  std::array<NpySet, 2> sets_;
};

}  // namespace

std::unique_ptr<Task> make_npy(const TaskOptions& options) {
  need_data(options, kNpyOrigin);
  return std::make_unique<Npy>(options);
}

}  // namespace ebb
