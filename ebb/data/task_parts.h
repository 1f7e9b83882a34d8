// SPDX-License-Identifier: Apache-2.0
// The makers that the table of tasks names, one file each, and what they share. Private.
#pragma once

#include <cstddef>
#include <string_view>

#include "ebb/data/task.h"

namespace ebb {

std::unique_ptr<Task> make_adding(const TaskOptions& options);
std::unique_ptr<Task> make_copy(const TaskOptions& options);
std::unique_ptr<Task> make_images(const TaskOptions& options);  // by options.name
std::unique_ptr<Task> make_qtdb(const TaskOptions& options);
std::unique_ptr<Task> make_text(const TaskOptions& options);
std::unique_ptr<Task> make_nmnist(const TaskOptions& options);
std::unique_ptr<Task> make_speech(const TaskOptions& options);
std::unique_ptr<Task> make_npy(const TaskOptions& options);

// options.steps, or `own` where it is 0. Throws Error(invalid_argument) unless it is least..most.
std::int64_t steps_of(const TaskOptions& options, std::int64_t own, std::int64_t least,
                      std::int64_t most);
// Throws Error(invalid_argument), with `origin`, if options name no place for files.
void need_data(const TaskOptions& options, std::string_view origin);

// Makes `batch` one of that many samples of the task's shape: inputs 0, classes -1, targets NaN, no
// lengths. Throws Error(invalid_argument) if a sample is not one of the split's.
void begin_batch(const Task& task, Split split, std::span<const std::int64_t> samples,
                 Batch& batch);

// "0", "1" and so on.
std::vector<std::string> number_names(std::int64_t count);

inline std::size_t index_of(Split split) { return split == Split::train ? 0 : 1; }

// Where step t of the batch's sample b begins, in arrays of [T,B,size].
inline std::size_t place(std::int64_t t, std::size_t b, std::size_t batch, std::size_t size) {
  return (static_cast<std::size_t>(t) * batch + b) * size;
}
inline void set_spike(std::span<std::uint64_t> words, std::size_t input) {
  words[input / 64] |= std::uint64_t{1} << (input % 64);
}

}  // namespace ebb
