// SPDX-License-Identifier: Apache-2.0
// Heartbeats of PhysioNet's QT database as spikes, each step to be labelled with one of six waves:
// Yin, Corradi, Bohté 2021, whose code also leaves the first ten steps out of loss and accuracy and
// counts steps without a label as class 0.
#include <array>
#include <cmath>
#include <string>

#include "ebb/core/error.h"
#include "ebb/data/read_mat.h"
#include "ebb/data/task_parts.h"
#include "ebb/data/whole_file.h"

namespace ebb {
namespace {

constexpr std::int64_t kSteps = 1301;
constexpr std::int64_t kInputs = 4;
constexpr std::int64_t kClasses = 6;
constexpr std::int64_t kUncounted = 10;
constexpr const char* kOrigin =
    "QTDB_train.mat and QTDB_test.mat, made of PhysioNet's QTDB, are in "
    "byin-cwi/Efficient-spiking-networks";

// Both [N,1301].
struct Set {
  std::vector<std::uint8_t> spikes;  // input i is bit i
  std::vector<std::uint8_t> classes;
};

NumberArray read_variable(std::span<const std::byte> bytes, const std::string& name,
                          const char* variable, std::int64_t width) {
  NumberArray array = read_mat(bytes, name, variable);
  const auto& shape = array.shape;
  if (shape.size() != 3 || shape[0] < 1 || shape[1] != kSteps || shape[2] != width) {
    fail(ErrorCode::invalid_argument, name, ": variable ", variable, " is ", shape_text(shape),
         "; it must be [N,", kSteps, ",", width, "]");
  }
  return array;
}

// Calls use(record and step, channel, number) for all; the file has the records fastest.
template <class Use>
void for_each_number(const NumberArray& array, Use use) {
  const auto records = static_cast<std::size_t>(array.shape[0]);
  with_numbers(array, [&](auto numbers) {
    std::size_t at = 0;
    for (std::size_t c = 0; c < static_cast<std::size_t>(array.shape[2]); ++c) {
      for (std::size_t t = 0; t < kSteps; ++t) {
        for (std::size_t i = 0; i < records; ++i, ++at) {
          use(i * kSteps + t, c, static_cast<double>(numbers[at]));
        }
      }
    }
  });
}

std::string place_text(std::size_t record_and_step, std::size_t channel) {
  return "sample " + std::to_string(record_and_step / kSteps) + ", step " +
         std::to_string(record_and_step % kSteps) + ", channel " + std::to_string(channel);
}

Set read_set(const std::filesystem::path& path) {
  const std::vector<std::byte> bytes = read_file(path, kOrigin);
  const std::string name = path.string();
  const NumberArray x = read_variable(bytes, name, "x", kInputs);
  const NumberArray y = read_variable(bytes, name, "y", kClasses);
  if (x.shape[0] != y.shape[0]) {
    fail(ErrorCode::invalid_argument, name, ": x has ", x.shape[0], " records, y has ", y.shape[0]);
  }
  const auto count = static_cast<std::size_t>(x.shape[0] * kSteps);
  Set set{std::vector<std::uint8_t>(count), std::vector<std::uint8_t>(count)};
  // -1 marks the end of a record.
  for_each_number(x, [&](std::size_t at, std::size_t c, double number) {
    if (number != 0 && number != 1 && number != -1) {
      fail(ErrorCode::invalid_argument, name, ": x has a ", number, " at ", place_text(at, c),
           "; it must be 0, 1 or -1");
    }
    if (number == 1) set.spikes[at] = static_cast<std::uint8_t>(set.spikes[at] | 1U << c);
  });
  std::vector<double> largest(count);
  for_each_number(y, [&](std::size_t at, std::size_t c, double number) {
    if (!std::isfinite(number)) {
      fail(ErrorCode::invalid_argument, name, ": y has a ", number, " at ", place_text(at, c),
           "; it must be finite");
    }
    if (c == 0 || number > largest[at]) {
      largest[at] = number;
      set.classes[at] = static_cast<std::uint8_t>(c);
    }
  });
  return set;
}

class Qtdb final : public Task {
 public:
  explicit Qtdb(const TaskOptions& options)
      : steps_(steps_of(options, kSteps, kUncounted + 1, kSteps)),
        sets_{read_set(options.data / "QTDB_train.mat"), read_set(options.data / "QTDB_test.mat")} {
  }

  TaskShape shape() const override {
    return {.steps = steps_,
            .inputs = kInputs,
            .outputs = kClasses,
            .spikes = true,
            .classes = true,
            .every_step = true};
  }
  Bytes bytes() const override {
    Bytes bytes = 0;
    for (const Set& set : sets_) bytes += vector_bytes(set.spikes) + vector_bytes(set.classes);
    return bytes;
  }
  std::int64_t samples(Split split) const override {
    return static_cast<std::int64_t>(sets_[index_of(split)].spikes.size()) / kSteps;
  }
  void fill(Split split, std::span<const std::int64_t> samples, Batch& batch) const override {
    begin_batch(*this, split, samples, batch);
    const Set& set = sets_[index_of(split)];
    for (std::size_t b = 0; b < samples.size(); ++b) {
      for (std::int64_t t = 0; t < steps_; ++t) {
        const auto from = static_cast<std::size_t>(samples[b] * kSteps + t);
        const std::size_t to = place(t, b, samples.size(), 1);
        batch.spikes[to] = set.spikes[from];
        if (t >= kUncounted) batch.classes[to] = set.classes[from];
      }
    }
  }

  std::vector<std::string> class_names() const override {
    return {"P", "PQ", "QR", "RS", "ST", "TP"};
  }

 private:
  std::int64_t steps_;
  std::array<Set, 2> sets_;
};

}  // namespace

std::unique_ptr<Task> make_qtdb(const TaskOptions& options) {
  need_data(options, kOrigin);
  return std::make_unique<Qtdb>(options);
}

}  // namespace ebb
