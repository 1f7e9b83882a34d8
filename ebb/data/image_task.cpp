// SPDX-License-Identifier: Apache-2.0
// Pictures of MNIST's kind as sequences of pixels, the class asked for at the end. Each step brings
// one pixel or, with fewer steps, several; permuted-... takes them in one fixed random order.
#include <array>
#include <numeric>

#include "ebb/core/error.h"
#include "ebb/core/random.h"
#include "ebb/data/read_idx.h"
#include "ebb/data/task_parts.h"
#include "ebb/data/whole_file.h"

namespace ebb {
namespace {

constexpr std::int64_t kSide = 28;
constexpr std::int64_t kPixels = kSide * kSide;
constexpr std::int64_t kClasses = 10;
// Papers differ in the order of permuted-...; this seed fixes the one here, whatever --seed is.
constexpr std::uint64_t kOrderSeed = 784;

struct Kind {
  float mean;  // of the training pixels, from 0 to 1
  float deviation;
  const char* origin;
  std::array<const char*, kClasses> names;
};
constexpr Kind kMnist = {
    .1307F,
    .3081F,
    "name a folder with MNIST's train-images-idx3-ubyte, train-labels-idx1-ubyte, "
    "t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte, plain or .gz, as "
    "torchvision.datasets.MNIST "
    "downloads them into MNIST/raw",
    {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}};
constexpr Kind kFashion = {
    .2860F,
    .3530F,
    "install the Debian package dataset-fashion-mnist, or name a folder with the files of "
    "zalandoresearch/fashion-mnist",
    {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag",
     "Ankle boot"}};
constexpr const char* kDebianFolder = "/usr/share/datasets/fashion-mnist";

struct Set {
  std::vector<std::uint8_t> pixels;  // [N,784]
  std::vector<std::uint8_t> classes;
};

IdxArray read(const std::filesystem::path& folder, const std::string& name, const char* origin,
              std::string& path_text) {
  std::filesystem::path path = folder / name;
  if (!is_there(path) && is_there(folder / (name + ".gz"))) path += ".gz";
  path_text = path.string();
  return read_idx(read_file(path, origin), path_text);
}

Set read_set(const std::filesystem::path& folder, const std::string& part, const char* origin) {
  std::string images_path;
  std::string labels_path;
  IdxArray images = read(folder, part + "-images-idx3-ubyte", origin, images_path);
  IdxArray labels = read(folder, part + "-labels-idx1-ubyte", origin, labels_path);
  const auto& shape = images.shape;
  if (shape.size() != 3 || shape[0] < 1 || shape[1] != kSide || shape[2] != kSide) {
    fail(ErrorCode::invalid_argument, images_path, ": pictures of 28x28 pixels are needed");
  }
  if (labels.shape != std::vector{shape[0]}) {
    fail(ErrorCode::invalid_argument, labels_path, ": one class for each of the ", shape[0],
         " pictures is needed");
  }
  for (const std::uint8_t label : labels.values) {
    if (label >= kClasses) {
      fail(ErrorCode::invalid_argument, labels_path, ": class ", int{label}, "; 0 to 9 are known");
    }
  }
  return {std::move(images.values), std::move(labels.values)};
}

// As shuffled by Fisher and Yates.
std::array<std::size_t, kPixels> pixel_order(bool permuted) {
  std::array<std::size_t, kPixels> order;
  std::iota(order.begin(), order.end(), std::size_t{0});
  const Random random(kOrderSeed);
  for (std::size_t i = order.size(); permuted && i-- > 1;) {
    std::swap(order[i], order[random.below(i, i + 1)]);
  }
  return order;
}

class Images final : public Task {
 public:
  Images(const Kind& kind, const std::filesystem::path& folder, std::int64_t steps, bool permuted)
      : kind_(kind),
        steps_(steps),
        order_(pixel_order(permuted)),
        sets_{read_set(folder, "train", kind.origin), read_set(folder, "t10k", kind.origin)} {
    for (std::size_t i = 0; i < value_of_.size(); ++i) {
      value_of_[i] = (static_cast<float>(i) / 255 - kind.mean) / kind.deviation;
    }
  }

  TaskShape shape() const override {
    return {.steps = steps_, .inputs = kPixels / steps_, .outputs = kClasses, .classes = true};
  }
  Bytes bytes() const override {
    Bytes bytes = 0;
    for (const Set& set : sets_) bytes += vector_bytes(set.pixels) + vector_bytes(set.classes);
    return bytes;
  }
  std::int64_t samples(Split split) const override {
    return static_cast<std::int64_t>(sets_[index_of(split)].classes.size());
  }
  void fill(Split split, std::span<const std::int64_t> samples, Batch& batch) const override {
    begin_batch(*this, split, samples, batch);
    const Set& set = sets_[index_of(split)];
    const auto inputs = static_cast<std::size_t>(kPixels / steps_);
    for (std::size_t b = 0; b < samples.size(); ++b) {
      const auto sample = static_cast<std::size_t>(samples[b]);
      const std::uint8_t* const pixels = &set.pixels[sample * kPixels];
      for (std::int64_t t = 0; t < steps_; ++t) {
        float* const input = &batch.values[place(t, b, samples.size(), inputs)];
        const std::size_t first = static_cast<std::size_t>(t) * inputs;
        for (std::size_t i = 0; i < inputs; ++i) input[i] = value_of_[pixels[order_[first + i]]];
      }
      batch.classes[b] = set.classes[sample];
    }
  }

  std::vector<std::string> class_names() const override {
    return {kind_.names.begin(), kind_.names.end()};
  }

 private:
  const Kind& kind_;
  std::int64_t steps_;
  std::array<std::size_t, kPixels> order_;
  std::array<Set, 2> sets_;
  std::array<float, 256> value_of_{};
};

}  // namespace

std::unique_ptr<Task> make_images(const TaskOptions& options) {
  const std::int64_t steps = steps_of(options, kPixels, 1, kPixels);
  if (kPixels % steps != 0) {
    fail(ErrorCode::invalid_argument, "task ", options.name, ": ", steps,
         " steps; 784 pixels are divided into 784, 392, 196, 112, 98, 56, 49, 28, 16, 14, 8, 7, 4, "
         "2 or 1");
  }
  const bool fashion = options.name.ends_with("fashion-mnist");
  const bool permuted = options.name.starts_with("permuted");
  const Kind& kind = fashion ? kFashion : kMnist;
  if (!fashion) need_data(options, kind.origin);
  const std::filesystem::path folder =
      options.data.empty() ? std::filesystem::path(kDebianFolder) : options.data;
  return std::make_unique<Images>(kind, folder, steps, permuted);
}

}  // namespace ebb
