// SPDX-License-Identifier: Apache-2.0
#include "ebb/train/optimiser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "ebb/core/random.h"
#include "tests/message_of.h"

namespace ebb::test::optimiser_test {
namespace {

using ::testing::HasSubstr;
using Numbers = std::vector<double>;

Numbers drawn(std::size_t count, std::uint64_t stream) {
  const Random random(5, stream);
  Numbers numbers(count);
  for (std::size_t i = 0; i < count; ++i) numbers[i] = random.normal(i);
  return numbers;
}

// The papers' formulas, one parameter at a time: Kingma, Ba 2015 (algorithm 1); Loshchilov, Hutter
// 2019 (algorithm 2, with the rate in front of the decay as in PyTorch); Polyak 1964.
class Oracle {
 public:
  explicit Oracle(const OptimiserOptions& options) : options_(options) {}

  double step(double x, double g, double lr) {
    const OptimiserOptions& o = options_;
    if (o.kind != OptimiserKind::adamw) g += o.weight_decay * x;
    ++t_;
    if (o.kind == OptimiserKind::sgd) {
      m_ = o.momentum * m_ + g;
      return x - lr * m_;
    }
    m_ = o.beta1 * m_ + (1 - o.beta1) * g;
    v_ = o.beta2 * v_ + (1 - o.beta2) * g * g;
    const double mean = m_ / (1 - std::pow(o.beta1, t_));
    const double square = v_ / (1 - std::pow(o.beta2, t_));
    const double decay = o.kind == OptimiserKind::adamw ? lr * o.weight_decay * x : 0;
    return x - decay - lr * mean / (std::sqrt(square) + o.epsilon);
  }

 private:
  OptimiserOptions options_;
  double m_ = 0, v_ = 0;
  int t_ = 0;
};

template <class Number>
void expect_like_oracle(const OptimiserOptions& options, double tolerance) {
  constexpr std::size_t size = 21;
  const Numbers start = drawn(size, 0);
  std::vector<Number> parameters(start.begin(), start.end());
  Numbers expected(parameters.begin(), parameters.end());
  std::vector<Oracle> oracles(size, Oracle(options));
  Optimiser<Number> optimiser(options, size);
  for (std::uint64_t t = 1; t <= 30; ++t) {
    const Numbers numbers = drawn(size, t);
    const std::vector<Number> gradient(numbers.begin(), numbers.end());
    double squares = 0;
    for (const Number g : gradient) squares += static_cast<double>(g) * static_cast<double>(g);
    const double norm = std::sqrt(squares), lr = 0.1 / static_cast<double>(t);
    const double scale = options.clip > 0 && norm > options.clip ? options.clip / (norm + 1e-6) : 1;
    EXPECT_DOUBLE_EQ(optimiser.step(parameters, gradient, lr), norm);
    for (std::size_t i = 0; i < size; ++i) {
      expected[i] = oracles[i].step(expected[i], scale * static_cast<double>(gradient[i]), lr);
      ASSERT_NEAR(parameters[i], expected[i], tolerance) << "step " << t << ", parameter " << i;
    }
  }
  EXPECT_EQ(optimiser.steps(), 30);
}

TEST(Optimiser, FollowsTheFormulas) {
  for (const char* kind : {"sgd", "adam", "adamw"}) {
    for (const double momentum : {0.0, 0.9}) {
      for (const double decay : {0.0, 0.1}) {
        for (const double clip : {0.0, 2.0}) {
          OptimiserOptions options = optimiser_defaults(parse_optimiser(kind));
          if (options.kind == OptimiserKind::sgd) options.momentum = momentum;
          if (momentum == 0) options.beta1 = 0.3;  // torch.lerp's other half
          options.weight_decay = decay;
          options.clip = clip;
          SCOPED_TRACE(std::string(kind) + ", momentum " + std::to_string(momentum) + ", decay " +
                       std::to_string(decay) + ", clip " + std::to_string(clip));
          expect_like_oracle<double>(options, 1e-13);
          expect_like_oracle<float>(options, 1e-5);
        }
      }
    }
  }
}

// After one step Adam has moved each parameter by the rate, against the sign of its gradient.
TEST(Optimiser, FirstStepOfAdamByHand) {
  Optimiser<double> adam(optimiser_defaults(OptimiserKind::adam), 2);
  Numbers parameters{1, 1};
  adam.step(parameters, Numbers{100, -0.01}, 0.5);
  EXPECT_NEAR(parameters[0], 0.5, 1e-6);
  EXPECT_NEAR(parameters[1], 1.5, 1e-6);
}

TEST(Optimiser, DefaultsAreThoseOfPyTorch) {
  const OptimiserOptions adam = optimiser_defaults(OptimiserKind::adam);
  EXPECT_EQ(adam.lr, 1e-3);
  EXPECT_EQ(adam.beta1, 0.9);
  EXPECT_EQ(adam.beta2, 0.999);
  EXPECT_EQ(adam.epsilon, 1e-8);
  EXPECT_EQ(adam.weight_decay, 0);
  EXPECT_EQ(optimiser_defaults(OptimiserKind::adamw).weight_decay, 0.01);
  EXPECT_EQ(optimiser_defaults(OptimiserKind::sgd).momentum, 0);
}

TEST(Optimiser, AGradientThatIsNotFiniteChangesNothing) {
  OptimiserOptions options = optimiser_defaults(OptimiserKind::adamw);
  options.clip = 1;
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), HUGE_VALF}) {
    Optimiser<float> once(options, 2), twice(options, 2);
    std::vector<float> a{1, 2}, b{1, 2};
    once.step(a, std::vector<float>{1, -1}, 0.1);
    EXPECT_FALSE(std::isfinite(twice.step(b, std::vector<float>{1, bad}, 0.1)));
    EXPECT_EQ(b, (std::vector<float>{1, 2}));
    EXPECT_EQ(twice.steps(), 0);
    twice.step(b, std::vector<float>{1, -1}, 0.1);
    EXPECT_EQ(a, b);
  }
}

// Large float gradients do not overflow their norm.
TEST(Optimiser, TheNormIsSummedInDouble) {
  Optimiser<float> sgd(optimiser_defaults(OptimiserKind::sgd), 2);
  std::vector<float> parameters{0, 0};
  EXPECT_FLOAT_EQ(static_cast<float>(sgd.step(parameters, std::vector<float>{3e30F, 4e30F}, 0)),
                  5e30F);
}

// Half the steps, the state through a checkpoint's tensors, the other half: the same bits.
TEST(Optimiser, GoesOnFromItsState) {
  for (const char* kind : {"sgd", "adam", "adamw"}) {
    OptimiserOptions options = optimiser_defaults(parse_optimiser(kind));
    if (options.kind == OptimiserKind::sgd) options.momentum = 0.9;
    std::vector<float> straight(9, 1), resumed(9, 1);
    const auto steps = [&](Optimiser<float>& optimiser, std::vector<float>& parameters,
                           std::uint64_t from, std::uint64_t to) {
      for (std::uint64_t t = from; t < to; ++t) {
        const Numbers numbers = drawn(9, t);
        optimiser.step(parameters, std::vector<float>(numbers.begin(), numbers.end()), 0.1);
      }
    };
    Optimiser<float> whole(options, 9), first(options, 9), second(options, 9);
    steps(whole, straight, 0, 20);
    steps(first, resumed, 0, 10);
    second.restore(first.state());
    steps(second, resumed, 10, 20);
    EXPECT_EQ(straight, resumed) << kind;
    EXPECT_EQ(second.steps(), 20);
  }
}

TEST(Optimiser, AStateOfAnotherOneIsRefused) {
  Optimiser<float> adam(optimiser_defaults(OptimiserKind::adam), 3);
  const auto message = [&](const std::vector<TensorView>& state) {
    return message_of([&] { adam.restore(state); });
  };
  const Optimiser<float> sgd(optimiser_defaults(OptimiserKind::sgd), 3);
  const Optimiser<float> larger(optimiser_defaults(OptimiserKind::adam), 4);
  const Optimiser<double> doubles(optimiser_defaults(OptimiserKind::adam), 3);
  EXPECT_THAT(message(sgd.state()), HasSubstr("has 1 tensors; that of adam"));
  EXPECT_THAT(message(larger.state()), HasSubstr("\"exp_avg\" has 4 numbers"));
  EXPECT_THAT(message(doubles.state()), HasSubstr("of type F64"));
  EXPECT_THAT(message({}), HasSubstr("no tensor \"step\""));
  EXPECT_EQ(message(adam.state()), "no error");
}

TEST(Optimiser, WhatIsWrongIsSaid) {
  const auto message = [](auto change) {
    OptimiserOptions options;
    change(options);
    return message_of([&] { Optimiser<float>(options, 1); });
  };
  using O = OptimiserOptions;
  EXPECT_THAT(message([](O& o) { o.lr = -1; }), HasSubstr("lr is -1; it must be"));
  EXPECT_THAT(message([](O& o) { o.lr = NAN; }), HasSubstr("lr is nan"));
  EXPECT_THAT(message([](O& o) { o.beta1 = 1; }), HasSubstr("beta1 is 1"));
  EXPECT_THAT(message([](O& o) { o.beta2 = -0.1; }), HasSubstr("beta2 is -0.1"));
  EXPECT_THAT(message([](O& o) { o.epsilon = 0; }), HasSubstr("epsilon is 0"));
  EXPECT_THAT(message([](O& o) { o.weight_decay = -1; }), HasSubstr("weight_decay is -1"));
  EXPECT_THAT(message([](O& o) { o.clip = -1; }), HasSubstr("clip is -1"));
  EXPECT_THAT(message([](O& o) { o.momentum = 0.9; }), HasSubstr("adam has none"));
  EXPECT_THAT(message_of([] { parse_optimiser("adagrad"); }), HasSubstr("sgd, adam and adamw"));

  Optimiser<double> optimiser({}, 2);
  Numbers two(2), three(3);
  EXPECT_THAT(message_of([&] { optimiser.step(three, two, 0.1); }), HasSubstr("made for 2"));
  EXPECT_THAT(message_of([&] { optimiser.step(two, three, 0.1); }), HasSubstr("made for 2"));
  EXPECT_THAT(message_of([&] { optimiser.step(two, two, NAN); }), HasSubstr("lr is nan"));
}

}  // namespace
}  // namespace ebb::test::optimiser_test
