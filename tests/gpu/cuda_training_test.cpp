// SPDX-License-Identifier: Apache-2.0
// What training does on a CUDA device against what it does on the CPU. Runs twice, as device_network_test.cpp does.
#include "ebb/device/cuda_training.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "ebb/core/random.h"
#include "ebb/device/device_memory.h"

namespace ebb::test::cuda_training_test {
namespace {

template <class Number>
class OnDevice {
 public:
  explicit OnDevice(const std::vector<Number>& from)
      : count_(from.size()), memory_(static_cast<Bytes>(from.size() * sizeof(Number))) {
    memory_.upload(from);
  }
  Number* data() { return reinterpret_cast<Number*>(memory_.data()); }
  std::vector<Number> all() const {
    std::vector<Number> found(count_);
    memory_.download(found);
    return found;
  }

 private:
  std::size_t count_;
  DeviceMemory memory_;
};

std::vector<float> made_up(std::size_t count, std::uint64_t seed) {
  const Random random(seed, 0);
  std::vector<float> found(count);
  for (std::size_t i = 0; i < count; ++i) found[i] = static_cast<float>(4 * random.uniform(i) - 2);
  return found;
}

std::vector<float> zeros(std::size_t count) { return std::vector<float>(count); }

class CudaTraining : public testing::Test {
 protected:
  void SetUp() override {
    const std::string missing = cuda_missing();
    if (!missing.empty()) GTEST_SKIP() << missing;
  }
};

TEST_F(CudaTraining, BitsBecomeNumbers) {
  constexpr std::int64_t rows = 5, columns = 130;
  std::vector<std::uint64_t> words(rows * 3);
  const Random random(1, 0);
  for (std::size_t i = 0; i < words.size(); ++i)
    words[i] = static_cast<std::uint64_t>(random.uniform(i) * 1.8e19);
  OnDevice<std::uint64_t> bits(words);
  OnDevice<float> numbers(zeros(rows * columns));
  cuda_expand_bits(CudaNumber::f32, numbers.data(), bits.data(), rows, columns, nullptr);
  const std::vector<float> found = numbers.all();
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) {
      const bool set = (words[static_cast<std::size_t>(r * 3 + c / 64)] >> (c % 64) & 1) != 0;
      ASSERT_EQ(found[static_cast<std::size_t>(r * columns + c)], set ? 1.F : 0.F) << r << " " << c;
    }
  }
}

TEST_F(CudaTraining, CrossEntropy) {
  constexpr std::size_t rows = 300, columns = 7;
  const std::vector<float> outputs = made_up(rows * columns, 2);
  std::vector<std::int32_t> classes(rows);
  for (std::size_t i = 0; i < rows; ++i) classes[i] = static_cast<std::int32_t>(i % 8) - 1;
  OnDevice<float> both(outputs), losses(zeros(rows)), right(zeros(rows));
  OnDevice<std::int32_t> targets(classes);
  CudaLosses given{both.data(), rows, columns, 0.25F, both.data(), losses.data(), right.data()};
  cuda_cross_entropy(given, targets.data(), nullptr);
  const std::vector<float> gradient = both.all(), found = losses.all(), is_right = right.all();
  for (std::size_t r = 0; r < rows; ++r) {
    double sum = 0;
    std::size_t best = 0;
    for (std::size_t c = 0; c < columns; ++c) {
      sum += std::exp(static_cast<double>(outputs[r * columns + c]));
      if (outputs[r * columns + c] > outputs[r * columns + best]) best = c;
    }
    const auto target = static_cast<std::size_t>(classes[r]);
    const bool counts = classes[r] >= 0;
    EXPECT_EQ(is_right[r], counts ? (best == target ? 1.F : 0.F) : -1.F);
    const double loss =
        counts ? std::log(sum) - static_cast<double>(outputs[r * columns + target]) : 0;
    EXPECT_NEAR(static_cast<double>(found[r]), loss, 1e-5) << r;
    for (std::size_t c = 0; c < columns; ++c) {
      const double share = std::exp(static_cast<double>(outputs[r * columns + c])) / sum;
      const double wanted = counts ? 0.25 * (share - (c == target ? 1 : 0)) : 0;
      EXPECT_NEAR(static_cast<double>(gradient[r * columns + c]), wanted, 1e-6) << r << " " << c;
    }
  }
}

TEST_F(CudaTraining, SquaredError) {
  constexpr std::size_t rows = 40, columns = 3;
  const std::vector<float> outputs = made_up(rows * columns, 3);
  std::vector<float> wanted = made_up(rows * columns, 4);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (i % 5 == 0 || i / columns == 7) wanted[i] = std::numeric_limits<float>::quiet_NaN();
  }
  OnDevice<float> own(outputs), targets(wanted), gradient(zeros(rows * columns)),
      losses(zeros(rows)), right(zeros(rows));
  CudaLosses given{own.data(), rows, columns, 2, gradient.data(), losses.data(), right.data()};
  cuda_squared_error(given, targets.data(), nullptr);
  const std::vector<float> found = losses.all(), of = gradient.all(), is_right = right.all();
  for (std::size_t r = 0; r < rows; ++r) {
    double sum = 0;
    for (std::size_t i = r * columns; i < (r + 1) * columns; ++i) {
      const double off = static_cast<double>(outputs[i]) - static_cast<double>(wanted[i]);
      sum += std::isnan(off) ? 0 : off * off / columns;
      EXPECT_NEAR(static_cast<double>(of[i]), std::isnan(off) ? 0 : 4 * off / columns, 1e-5);
    }
    EXPECT_NEAR(static_cast<double>(found[r]), sum, 1e-5);
    EXPECT_EQ(is_right[r], r == 7 ? -1.F : 0.F);
  }
  EXPECT_EQ(own.all(), outputs);
}

TEST_F(CudaTraining, SumsOfScores) {
  constexpr std::size_t rows = 70'001;
  const std::vector<float> numbers = made_up(rows, 6);
  std::vector<float> which(rows);
  double loss = 0, correct = 0, targets = 0;
  for (std::size_t i = 0; i < rows; ++i) {
    which[i] = static_cast<float>(i % 3) - 1;
    if (which[i] < 0) continue;
    loss += static_cast<double>(numbers[i]);
    correct += static_cast<double>(which[i]);
    targets += 1;
  }
  OnDevice<float> losses(numbers), right(which);
  OnDevice<double> sums(std::vector<double>(3 * kSums, 0));
  CudaLosses given;
  given.rows = rows;
  given.losses = losses.data();
  given.right = right.data();
  for (int time = 1; time <= 2; ++time) {  // the second is added to the first
    cuda_score_sums(sums.data(), given, nullptr);
    const std::vector<double> all = sums.all();
    const auto sum = [&](int k) {
      return std::accumulate(all.begin() + k * kSums, all.begin() + (k + 1) * kSums, 0.0);
    };
    EXPECT_NEAR(sum(0), time * loss, 1e-6);
    EXPECT_EQ(sum(1), time * correct);
    EXPECT_EQ(sum(2), time * targets);
  }
}

TEST_F(CudaTraining, SumsOfSquaresHaveTheSameBits) {
  const std::vector<float> numbers = made_up(100'003, 5);
  OnDevice<float> own(numbers);
  OnDevice<double> sums(std::vector<double>(kSums, 0));
  cuda_square_sums(sums.data(), own.data(), 100'003, nullptr);
  const std::vector<double> first = sums.all();
  cuda_square_sums(sums.data(), own.data(), 100'003, nullptr);
  EXPECT_EQ(sums.all(), first);
  double exact = 0;
  for (const float x : numbers) exact += static_cast<double>(x) * static_cast<double>(x);
  EXPECT_NEAR(std::accumulate(first.begin(), first.end(), 0.0), exact, 1e-9 * exact);
}

TEST_F(CudaTraining, StepsOfOptimisers) {
  constexpr std::size_t count = 1000;
  const std::vector<float> start = made_up(count, 6), slope = made_up(count, 7);
  OnDevice<float> values(start), gradient(slope), first(zeros(count)), second(zeros(count));
  const CudaAdam adam{.scale = 0.5F,
                      .shrink = 0.99F,
                      .decay = 0.01F,
                      .beta1 = 0.9F,
                      .beta2 = 0.999F,
                      .rest1 = 0.1F,
                      .rest2 = 0.001F,
                      .epsilon = 1e-8F,
                      .rate = 0.01F,
                      .root = 0.03F};
  for (int i = 0; i < 2; ++i)
    cuda_adam(adam, values.data(), gradient.data(), first.data(), second.data(), count, nullptr);
  const CudaSgd sgd{.scale = 0.5F, .decay = 0.01F, .momentum = 0.9F, .rate = 0.1F};
  OnDevice<float> others(start), momentum(zeros(count));
  for (int i = 0; i < 2; ++i)
    cuda_sgd(sgd, others.data(), gradient.data(), momentum.data(), count, nullptr);
  const std::vector<float> by_adam = values.all(), by_sgd = others.all();
  for (std::size_t i = 0; i < count; ++i) {
    double a = static_cast<double>(start[i]), s = a, m = 0, v = 0, b = 0;
    const auto g = static_cast<double>(slope[i]) * 0.5;
    for (int k = 0; k < 2; ++k) {
      const double own = g + 0.01 * a;
      m += 0.1 * (own - m);
      v = 0.999 * v + 0.001 * own * own;
      a = a * 0.99 - 0.01 * m / (std::sqrt(v) / 0.03 + 1e-8);
      b = 0.9 * b + g + 0.01 * s;
      s -= 0.1 * b;
    }
    ASSERT_NEAR(static_cast<double>(by_adam[i]), a, 1e-5) << i;
    ASSERT_NEAR(static_cast<double>(by_sgd[i]), s, 1e-5) << i;
  }
}

}  // namespace
}  // namespace ebb::test::cuda_training_test
