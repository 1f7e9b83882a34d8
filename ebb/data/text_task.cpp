// SPDX-License-Identifier: Apache-2.0
// A text, byte by byte, the next one asked for at every step. The first nine tenths are for
// training. Sample i is the i-th run of T bytes; no run overlaps another but by the byte to come.
#include <algorithm>
#include <array>
#include <system_error>

#include "ebb/core/error.h"
#include "ebb/data/task_parts.h"
#include "ebb/data/whole_file.h"

namespace ebb {
namespace {

constexpr std::int64_t kOwnSteps = 256;
constexpr std::int64_t kMostSteps = std::int64_t{1} << 40;
constexpr const char* kOrigin =
    "any text will do, such as tinyshakespeare's input.txt of karpathy/char-rnn";

std::filesystem::path text_file(const std::filesystem::path& data) {
  std::error_code none;
  if (!std::filesystem::is_directory(data, none)) return data;
  const std::vector<std::filesystem::path> found = files_in(data, ".txt", kOrigin);
  if (found.empty()) {
    fail(ErrorCode::io, "there is no file .txt in ", data.string(), "; ", kOrigin);
  }
  if (found.size() > 1) {
    fail(ErrorCode::invalid_argument, "there are ", found.size(), " files .txt in ", data.string(),
         "; name one of them");
  }
  return found.front();
}

class Text final : public Task {
 public:
  explicit Text(const TaskOptions& options) : steps_(steps_of(options, kOwnSteps, 1, kMostSteps)) {
    const std::filesystem::path path = text_file(options.data);
    text_ = read_file(path, kOrigin);
    take_symbols(options.symbols, path.string());
    if (outputs_ < 2 || samples(Split::train) < 1 || samples(Split::test) < 1) {
      fail(ErrorCode::invalid_argument, path.string(), ": ", text_.size(), " bytes, ", outputs_,
           " of them different; sequences of ", steps_,
           " steps need 2 different ones and, in the last tenth, ", steps_ + 1, " bytes");
    }
  }

  TaskShape shape() const override {
    return {.steps = steps_,
            .inputs = outputs_,
            .outputs = outputs_,
            .spikes = true,
            .classes = true,
            .every_step = true};
  }
  Bytes bytes() const override { return vector_bytes(text_); }
  std::int64_t samples(Split split) const override {
    const std::int64_t bytes = end(split) - begin(split);
    return bytes < 1 ? 0 : (bytes - 1) / steps_;
  }
  void fill(Split split, std::span<const std::int64_t> samples, Batch& batch) const override {
    begin_batch(*this, split, samples, batch);
    const auto words = static_cast<std::size_t>(words_of(outputs_));
    for (std::size_t b = 0; b < samples.size(); ++b) {
      const std::byte* const run =
          &text_[static_cast<std::size_t>(begin(split))] + samples[b] * steps_;
      for (std::int64_t t = 0; t < steps_; ++t) {
        const std::span<std::uint64_t> spikes(batch.spikes);
        set_spike(spikes.subspan(place(t, b, samples.size(), words), words),
                  std::to_integer<std::size_t>(run[t]));
        batch.classes[place(t, b, samples.size(), 1)] = std::to_integer<std::int32_t>(run[t + 1]);
      }
    }
  }

  std::string symbols() const override { return symbols_; }

 private:
  // Numbers for the bytes that occur, in their order, or for those given.
  void take_symbols(const std::string& given, const std::string& name) {
    std::array<bool, 256> occurs{};
    for (const std::byte byte : text_) occurs[std::to_integer<std::size_t>(byte)] = true;
    std::array<int, 256> symbol{};
    symbol.fill(-1);
    for (std::size_t i = 0; i < occurs.size() && given.empty(); ++i) {
      if (occurs[i]) symbols_ += static_cast<char>(i);
    }
    if (!given.empty()) symbols_ = given;
    for (const char byte : symbols_) symbol[static_cast<std::uint8_t>(byte)] = outputs_++;
    for (std::size_t i = 0; i < text_.size(); ++i) {
      const int own = symbol[std::to_integer<std::size_t>(text_[i])];
      if (own < 0) {
        fail(ErrorCode::invalid_argument, name, ": byte ", i, " is ",
             std::to_integer<int>(text_[i]), ", which the text of the training did not have");
      }
      text_[i] = static_cast<std::byte>(own);
    }
  }
  std::int64_t begin(Split split) const { return split == Split::train ? 0 : end(Split::train); }
  std::int64_t end(Split split) const {
    const auto size = static_cast<std::int64_t>(text_.size());
    return split == Split::train ? size * 9 / 10 : size;
  }

  std::int64_t steps_;
  std::string symbols_;  // the bytes of the classes
  int outputs_ = 0;
  std::vector<std::byte> text_;  // symbols
};

}  // namespace

std::unique_ptr<Task> make_text(const TaskOptions& options) {
  need_data(options, kOrigin);
  return std::make_unique<Text>(options);
}

}  // namespace ebb
