// SPDX-License-Identifier: Apache-2.0
#include "ebb/train/optimiser.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "ebb/core/error.h"
#include "ebb/core/zeros.h"

namespace ebb {
namespace {

constexpr std::array<std::string_view, 3> kWords{"sgd", "adam", "adamw"};

void check(const char* name, double value, bool good, const char* allowed) {
  if (std::isfinite(value) && good) return;
  fail(ErrorCode::invalid_argument, "optimiser: ", name, " is ", value, "; it must be ", allowed);
}

// Several sums side by side, since one alone would wait for each addition.
template <class Number>
double norm_of(std::span<const Number> numbers) {
  constexpr std::size_t lanes = 8;
  std::array<double, lanes> sums{};
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto number = static_cast<double>(numbers[i]);
    sums[i % lanes] += number * number;
  }
  double sum = 0;
  for (const double part : sums) sum += part;
  return std::sqrt(sum);
}

}  // namespace

OptimiserKind parse_optimiser(std::string_view word) {
  for (std::size_t i = 0; i < kWords.size(); ++i) {
    if (kWords[i] == word) return static_cast<OptimiserKind>(i);
  }
  fail(ErrorCode::invalid_argument, "there is no optimiser '", word,
       "'; there are sgd, adam and adamw");
}

std::string_view to_text(OptimiserKind kind) { return kWords[static_cast<std::size_t>(kind)]; }

OptimiserOptions optimiser_defaults(OptimiserKind kind) {
  OptimiserOptions options;
  options.kind = kind;
  if (kind == OptimiserKind::adamw) options.weight_decay = 0.01;
  return options;
}

void check_optimiser(const OptimiserOptions& options) {
  const auto below_one = [](double x) { return x >= 0 && x < 1; };
  check("lr", options.lr, options.lr >= 0, "a number of 0 or more");
  check("momentum", options.momentum, below_one(options.momentum), "from 0 to below 1");
  check("beta1", options.beta1, below_one(options.beta1), "from 0 to below 1");
  check("beta2", options.beta2, below_one(options.beta2), "from 0 to below 1");
  check("epsilon", options.epsilon, options.epsilon >= std::numeric_limits<float>::min(),
        "a number above 0 that a float can hold");
  check("weight_decay", options.weight_decay, options.weight_decay >= 0, "a number of 0 or more");
  check("clip", options.clip, options.clip >= 0, "a number above 0, or 0 for none");
  if (options.momentum != 0 && options.kind != OptimiserKind::sgd) {
    fail(ErrorCode::invalid_argument, "optimiser: momentum is ", options.momentum, ", and ",
         to_text(options.kind), " has none; it has beta1");
  }
}

template <class Number>
StepNumbers<Number> step_numbers(const OptimiserOptions& options, std::int64_t count, double norm,
                                 double lr) {
  StepNumbers<Number> with;
  // clip_grad_norm_ has the same 1e-6 against division by 0.
  const bool clips = options.clip > 0;
  with.scale = static_cast<Number>(clips ? std::min(1.0, options.clip / (norm + 1e-6)) : 1.0);
  const bool decoupled = options.kind == OptimiserKind::adamw;
  with.shrink = static_cast<Number>(decoupled ? 1 - lr * options.weight_decay : 1);
  with.decay = static_cast<Number>(decoupled ? 0 : options.weight_decay);
  if (options.kind == OptimiserKind::sgd) {
    with.rate = static_cast<Number>(lr);
    with.momentum = static_cast<Number>(options.momentum);
    return with;
  }
  with.beta1 = static_cast<Number>(options.beta1);
  with.beta2 = static_cast<Number>(options.beta2);
  with.rest1 = static_cast<Number>(1 - options.beta1);
  with.rest2 = static_cast<Number>(1 - options.beta2);
  with.epsilon = static_cast<Number>(options.epsilon);
  const auto steps = static_cast<double>(count);
  with.rate = static_cast<Number>(lr / (1 - std::pow(options.beta1, steps)));
  with.root = static_cast<Number>(std::sqrt(1 - std::pow(options.beta2, steps)));
  return with;
}

template <class Number>
Optimiser<Number>::Optimiser(const OptimiserOptions& options, std::size_t parameters)
    : options_(options), size_(parameters) {
  check_optimiser(options);
  const bool sgd = options.kind == OptimiserKind::sgd;
  if (!sgd || options.momentum != 0) first_ = zeros<Number>(parameters, "the optimiser's state");
  if (!sgd) second_ = zeros<Number>(parameters, "the optimiser's state");
}

template <class Number>
double Optimiser<Number>::step(std::span<Number> parameters, std::span<const Number> gradient,
                               double lr) {
  if (parameters.size() != size_ || gradient.size() != size_) {
    fail(ErrorCode::invalid_argument, "optimiser: ", parameters.size(), " parameters and ",
         gradient.size(), " numbers of gradient; it was made for ", size_);
  }
  check("lr", lr, lr >= 0, "a number of 0 or more");
  const double norm = norm_of(gradient);
  if (!std::isfinite(norm)) return norm;
  const StepNumbers<Number> with = step_numbers<Number>(options_, ++steps_, norm, lr);
  if (options_.kind == OptimiserKind::sgd) {
    sgd(parameters, gradient, with);
  } else {
    adam(parameters, gradient, with);
  }
  return norm;
}

template <class Number>
void Optimiser<Number>::sgd(std::span<Number> parameters, std::span<const Number> gradient,
                            const StepNumbers<Number>& with) {
  for (std::size_t i = 0; i < size_; ++i) {
    Number change = gradient[i] * with.scale + with.decay * parameters[i];
    if (!first_.empty()) {
      first_[i] = first_[i] * with.momentum + change;
      change = first_[i];
    }
    parameters[i] -= with.rate * change;
  }
}

template <class Number>
void Optimiser<Number>::adam(std::span<Number> parameters, std::span<const Number> gradient,
                             const StepNumbers<Number>& with) {
  // As torch.lerp: from the nearer end.
  const bool near = with.rest1 < Number{0.5};
  for (std::size_t i = 0; i < size_; ++i) {
    const Number parameter = parameters[i] * with.shrink;
    const Number g = gradient[i] * with.scale + with.decay * parameters[i];
    const Number apart = g - first_[i];
    first_[i] = near ? first_[i] + with.rest1 * apart : g - apart * with.beta1;
    second_[i] = second_[i] * with.beta2 + with.rest2 * g * g;
    parameters[i] =
        parameter - with.rate * first_[i] / (std::sqrt(second_[i]) / with.root + with.epsilon);
  }
}

template <class Number>
std::vector<TensorView> Optimiser<Number>::state() const {
  const auto shape = std::vector{static_cast<std::int64_t>(size_)};
  std::vector<TensorView> state{view_tensor("step", {}, std::span<const std::int64_t>(&steps_, 1))};
  const auto add = [&](const char* name, const std::vector<Number>& numbers) {
    state.push_back(view_tensor(name, shape, std::span<const Number>(numbers)));
  };
  if (options_.kind != OptimiserKind::sgd) {
    add("exp_avg", first_);
    add("exp_avg_sq", second_);
  } else if (options_.momentum != 0) {
    add("momentum_buffer", first_);
  }
  return state;
}

template <class Number>
void Optimiser<Number>::restore(std::span<const TensorView> given) {
  std::int64_t steps = 0;
  copy_tensor(find_tensor(given, "step"), std::span(&steps, 1));
  if (steps < 0) {
    fail(ErrorCode::invalid_argument, "optimiser: its state is after ", steps, " steps");
  }
  const std::vector<TensorView> wanted = state();
  if (given.size() != wanted.size()) {
    fail(ErrorCode::invalid_argument, "optimiser: the state has ", given.size(),
         " tensors; that of ", to_text(options_.kind), " with these options has ", wanted.size());
  }
  // All are looked at before the first is changed: a second copy would be as large as the state.
  for (const TensorView& own : wanted) check_tensor(find_tensor(given, own.name), own);
  if (wanted.size() > 1) copy_tensor(find_tensor(given, wanted[1].name), std::span(first_));
  if (wanted.size() > 2) copy_tensor(find_tensor(given, wanted[2].name), std::span(second_));
  steps_ = steps;
}

template StepNumbers<float> step_numbers(const OptimiserOptions&, std::int64_t, double, double);
template StepNumbers<double> step_numbers(const OptimiserOptions&, std::int64_t, double, double);
template class Optimiser<float>;
template class Optimiser<double>;

}  // namespace ebb
