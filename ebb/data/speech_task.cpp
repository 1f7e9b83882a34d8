// SPDX-License-Identifier: Apache-2.0
// Spoken digits as raw samples, the class asked for at the end of each recording. As in the Free
// Spoken Digit Dataset, recordings 0 to 4 of each speaker and class are for testing.
#include <algorithm>
#include <array>
#include <charconv>

#include "ebb/core/error.h"
#include "ebb/data/read_wav.h"
#include "ebb/data/task_parts.h"
#include "ebb/data/whole_file.h"

namespace ebb {
namespace {

constexpr std::int64_t kTested = 5;
constexpr std::int64_t kMostClasses = 10'000;
constexpr const char* kOrigin =
    "files {class}_{speaker}_{index}.wav are in the folder recordings of "
    "Jakobovski/free-spoken-digit-dataset";

struct Set {
  std::vector<std::vector<std::int16_t>> recordings;
  std::vector<std::int32_t> classes;
};

struct Label {
  std::int64_t klass = 0;
  std::int64_t index = 0;
};

// "7_jackson_32": class 7, recording 32.
Label parse_stem(const std::filesystem::path& path) {
  const std::string stem = path.stem().string();
  const std::size_t first = stem.find('_');
  const std::size_t last = stem.rfind('_');
  const auto number = [&](std::size_t begin, std::size_t end) {
    std::int64_t value = -1;
    const char* const stop = stem.data() + end;
    const auto [read, error] = std::from_chars(stem.data() + begin, stop, value);
    return error == std::errc() && read == stop ? value : -1;
  };
  const bool parts = first != std::string::npos && first != last;
  const Label label{parts ? number(0, first) : -1, parts ? number(last + 1, stem.size()) : -1};
  if (label.klass < 0 || label.klass >= kMostClasses || label.index < 0) {
    fail(ErrorCode::invalid_argument, path.string(),
         ": the name must be {class}_{speaker}_{index}.wav with a class below ", kMostClasses);
  }
  return label;
}

class Speech final : public Task {
 public:
  explicit Speech(const TaskOptions& options) {
    const std::filesystem::path inner = options.data / "recordings";
    const std::filesystem::path& folder = is_there(inner) ? inner : options.data;
    std::int64_t rate = 0;
    for (const std::filesystem::path& path : files_in(folder, ".wav", kOrigin)) add(path, rate);
    for (const Split split : {Split::train, Split::test}) {
      if (samples(split) > 0) continue;
      fail(ErrorCode::io, folder.string(), " holds no recording of index ",
           split == Split::train ? "5 and more, for training" : "0 to 4, for testing", "; ",
           kOrigin);
    }
    steps_ = steps_of(options, longest_, 1, longest_);
  }

  TaskShape shape() const override {
    return {.steps = steps_, .inputs = 1, .outputs = classes_, .classes = true};
  }
  Bytes bytes() const override {
    Bytes bytes = 0;
    for (const Set& set : sets_) {
      for (const auto& recording : set.recordings) bytes += vector_bytes(recording);
    }
    return bytes;
  }
  std::int64_t samples(Split split) const override {
    return static_cast<std::int64_t>(sets_[index_of(split)].classes.size());
  }
  void fill(Split split, std::span<const std::int64_t> samples, Batch& batch) const override {
    begin_batch(*this, split, samples, batch);
    const Set& set = sets_[index_of(split)];
    for (std::size_t b = 0; b < samples.size(); ++b) {
      const auto sample = static_cast<std::size_t>(samples[b]);
      const std::vector<std::int16_t>& recording = set.recordings[sample];
      const auto length = std::min(static_cast<std::int64_t>(recording.size()), steps_);
      for (std::int64_t t = 0; t < length; ++t) {
        batch.values[place(t, b, samples.size(), 1)] =
            static_cast<float>(recording[static_cast<std::size_t>(t)]) / 32768;
      }
      batch.lengths.push_back(length);
      batch.classes[b] = set.classes[sample];
    }
  }

  std::vector<std::string> class_names() const override { return number_names(classes_); }

 private:
  void add(const std::filesystem::path& path, std::int64_t& rate) {
    const Label label = parse_stem(path);
    Recording recording = read_wav(read_file(path, kOrigin), path.string());
    if (recording.samples.empty()) {
      fail(ErrorCode::invalid_argument, path.string(), ": the recording is empty");
    }
    if (rate != 0 && rate != recording.rate) {
      fail(ErrorCode::invalid_argument, path.string(), ": ", recording.rate,
           " samples per second, others have ", rate, "; all must have the same");
    }
    rate = recording.rate;
    longest_ = std::max(longest_, static_cast<std::int64_t>(recording.samples.size()));
    classes_ = std::max(classes_, label.klass + 1);
    Set& set = sets_[index_of(label.index < kTested ? Split::test : Split::train)];
    set.recordings.push_back(std::move(recording.samples));
    set.classes.push_back(static_cast<std::int32_t>(label.klass));
  }

  std::int64_t steps_ = 0;
  std::int64_t longest_ = 0;
  std::int64_t classes_ = 0;
  std::array<Set, 2> sets_;
};

}  // namespace

std::unique_ptr<Task> make_speech(const TaskOptions& options) {
  need_data(options, kOrigin);
  return std::make_unique<Speech>(options);
}

}  // namespace ebb
