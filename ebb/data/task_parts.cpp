// SPDX-License-Identifier: Apache-2.0
#include "ebb/data/task_parts.h"

#include <array>
#include <limits>
#include <new>

#include "ebb/core/error.h"
#include "ebb/data/number_array.h"

namespace ebb {
namespace {

template <class T>
void fill_room(std::vector<T>& numbers, std::span<const std::int64_t> shape, T value) {
  const std::optional<std::size_t> count = count_within(shape, numbers.max_size());
  if (!count) {
    fail(ErrorCode::out_of_memory, "a batch of ", shape_text(shape), " numbers is too large");
  }
  try {
    numbers.assign(*count, value);
  } catch (const std::bad_alloc&) {
    fail(ErrorCode::out_of_memory, "no memory for a batch of ", shape_text(shape), " numbers");
  }
}

}  // namespace

std::int64_t steps_of(const TaskOptions& options, std::int64_t own, std::int64_t least,
                      std::int64_t most) {
  const std::int64_t steps = options.steps == 0 ? own : options.steps;
  if (steps < least || steps > most) {
    fail(ErrorCode::invalid_argument, "task ", options.name, ": ", steps, " steps; ", least, " to ",
         most, " are possible");
  }
  return steps;
}

void need_data(const TaskOptions& options, std::string_view origin) {
  if (!options.data.empty()) return;
  fail(ErrorCode::invalid_argument, "task ", options.name,
       " needs files, and no place of data is named; ", origin);
}

std::vector<std::string> number_names(std::int64_t count) {
  std::vector<std::string> names(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < names.size(); ++i) names[i] = std::to_string(i);
  return names;
}

void begin_batch(const Task& task, Split split, std::span<const std::int64_t> samples,
                 Batch& batch) {
  const std::int64_t there = task.samples(split);
  for (const std::int64_t sample : samples) {
    if (sample < 0 || (there != Task::kEndless && sample >= there)) {
      fail(ErrorCode::invalid_argument, "there is no sample ", sample, " of the ",
           split == Split::train ? "training" : "test", " set of ", there);
    }
  }
  const TaskShape shape = task.shape();
  const auto count = static_cast<std::int64_t>(samples.size());
  const std::int64_t times = shape.every_step ? shape.steps : 1;
  const std::int64_t words = shape.spikes ? words_of(shape.inputs) : 0;
  const std::int64_t inputs = shape.spikes ? 0 : shape.inputs;
  const std::int64_t classes = shape.classes ? 1 : 0;
  const std::int64_t outputs = shape.classes ? 0 : shape.outputs;
  fill_room<float>(batch.values, std::array{shape.steps, count, inputs}, 0);
  fill_room<std::uint64_t>(batch.spikes, std::array{shape.steps, count, words}, 0);
  fill_room<std::int32_t>(batch.classes, std::array{times, count, classes}, -1);
  fill_room<float>(batch.targets, std::array{times, count, outputs},
                   std::numeric_limits<float>::quiet_NaN());
  batch.lengths.clear();
}

}  // namespace ebb
