// SPDX-License-Identifier: Apache-2.0
// Orchard et al. 2015: digits before a moving event camera, in the small selection of SLAYER
// (Shrestha, Orchard 2018). Input (polarity * 34 + y) * 34 + x fires in a step in which such an
// event lies; the class is asked for at the end.
#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "ebb/core/error.h"
#include "ebb/data/read_events.h"
#include "ebb/data/task_parts.h"
#include "ebb/data/whole_file.h"

namespace ebb {
namespace {

constexpr int kSide = 34;
constexpr std::int64_t kInputs = std::int64_t{kSide} * kSide * 2;
constexpr std::int64_t kClasses = 10;
constexpr std::int64_t kOwnSteps = 300;
constexpr std::int64_t kMicroseconds = 300'000;  // nominal; what comes later is left out
constexpr const char* kOrigin =
    "N.bs2 files, train1K.txt and test100.txt are in the folder NMNISTsmall of "
    "bamsumit/slayerPytorch";

struct Spike {
  std::uint32_t step;
  std::uint16_t input;
};

struct Set {
  std::vector<Spike> spikes;      // of all samples, one after the other
  std::vector<std::size_t> ends;  // where each sample's end
  std::vector<std::uint8_t> classes;
};

struct Line {
  std::int64_t sample = 0;
  std::int64_t label = 0;
};

// "sample<TAB>class"; nothing for empty lines and the heading, which begins with #.
std::optional<Line> parse_line(std::string_view text, const std::string& name) {
  while (!text.empty() && (text.back() == '\r' || text.back() == ' ')) text.remove_suffix(1);
  if (text.empty() || text.front() == '#') return {};
  Line line;
  const char* const end = text.data() + text.size();
  const auto sample = std::from_chars(text.data(), end, line.sample);
  const char* label = sample.ptr;
  while (label != end && (*label == '\t' || *label == ' ')) ++label;
  const auto last = std::from_chars(label, end, line.label);
  if (sample.ec != std::errc() || last.ec != std::errc() || last.ptr != end || line.sample < 0) {
    fail(ErrorCode::invalid_argument, name, ": '", text, "' is not a sample and its class");
  }
  if (line.label < 0 || line.label >= kClasses) {
    fail(ErrorCode::invalid_argument, name, ": class ", line.label, "; 0 to 9 are known");
  }
  return line;
}

std::vector<Line> read_list(const std::filesystem::path& path) {
  const std::vector<std::byte> bytes = read_file(path, kOrigin);
  const std::string name = path.string();
  std::string_view rest(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  std::vector<Line> lines;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    if (const auto line = parse_line(rest.substr(0, end), name)) lines.push_back(*line);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  if (lines.empty()) fail(ErrorCode::invalid_argument, name, ": it lists no samples");
  return lines;
}

void add_sample(const std::filesystem::path& folder, const Line& line, std::int64_t steps,
                Set& set) {
  std::filesystem::path path = folder / (std::to_string(line.sample) + ".bs2");
  if (!is_there(path) && is_there(std::filesystem::path(path).replace_extension(".bin"))) {
    path.replace_extension(".bin");
  }
  for (const CameraEvent& event :
       read_events(read_file(path, kOrigin), path.string(), kSide, kSide)) {
    const std::int64_t step = event.microseconds * steps / kMicroseconds;
    if (step >= steps) continue;
    const int input = (event.polarity * kSide + event.y) * kSide + event.x;
    set.spikes.push_back({static_cast<std::uint32_t>(step), static_cast<std::uint16_t>(input)});
  }
  set.ends.push_back(set.spikes.size());
  set.classes.push_back(static_cast<std::uint8_t>(line.label));
}

Set read_set(const std::filesystem::path& folder, const char* list, std::int64_t steps) {
  Set set;
  for (const Line& line : read_list(folder / list)) add_sample(folder, line, steps, set);
  return set;
}

class Nmnist final : public Task {
 public:
  explicit Nmnist(const TaskOptions& options)
      : steps_(steps_of(options, kOwnSteps, 1, kMicroseconds)),
        sets_{read_set(options.data, "train1K.txt", steps_),
              read_set(options.data, "test100.txt", steps_)} {}

  TaskShape shape() const override {
    return {
        .steps = steps_, .inputs = kInputs, .outputs = kClasses, .spikes = true, .classes = true};
  }
  Bytes bytes() const override {
    Bytes bytes = 0;
    for (const Set& set : sets_) {
      bytes += vector_bytes(set.spikes) + vector_bytes(set.ends) + vector_bytes(set.classes);
    }
    return bytes;
  }
  std::int64_t samples(Split split) const override {
    return static_cast<std::int64_t>(sets_[index_of(split)].ends.size());
  }
  void fill(Split split, std::span<const std::int64_t> samples, Batch& batch) const override {
    begin_batch(*this, split, samples, batch);
    const Set& set = sets_[index_of(split)];
    const std::span<std::uint64_t> spikes(batch.spikes);
    constexpr auto words = static_cast<std::size_t>(words_of(kInputs));
    for (std::size_t b = 0; b < samples.size(); ++b) {
      const auto sample = static_cast<std::size_t>(samples[b]);
      for (std::size_t i = sample == 0 ? 0 : set.ends[sample - 1]; i < set.ends[sample]; ++i) {
        const Spike spike = set.spikes[i];
        set_spike(spikes.subspan(place(spike.step, b, samples.size(), words), words), spike.input);
      }
      batch.classes[b] = set.classes[sample];
    }
  }

  std::vector<std::string> class_names() const override { return number_names(kClasses); }

 private:
  std::int64_t steps_;
  std::array<Set, 2> sets_;
};

}  // namespace

std::unique_ptr<Task> make_nmnist(const TaskOptions& options) {
  need_data(options, kOrigin);
  return std::make_unique<Nmnist>(options);
}

}  // namespace ebb
