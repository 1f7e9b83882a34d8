// SPDX-License-Identifier: Apache-2.0
// Optimisers: what a gradient does to the parameters. The arithmetic is that of torch.optim.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "ebb/core/vector_bytes.h"
#include "ebb/train/safetensors.h"

namespace ebb {

enum class OptimiserKind {
  sgd,    // with momentum if asked; weight decay is added to the gradient
  adam,   // weight decay is added to the gradient
  adamw,  // weight decay shrinks the parameters
};
// "sgd", "adam", "adamw"; throws Error(invalid_argument) for other words.
OptimiserKind parse_optimiser(std::string_view word);
std::string_view to_text(OptimiserKind kind);

struct OptimiserOptions {
  OptimiserKind kind = OptimiserKind::adam;
  double lr = 1e-3;                   // the base rate; each step is told its own
  double momentum = 0;                // sgd
  double beta1 = 0.9, beta2 = 0.999;  // adam, adamw
  double epsilon = 1e-8;              // adam, adamw
  double weight_decay = 0;
  double clip = 0;  // gradients with a larger L2 norm are scaled down to it; 0: none
};
// As PyTorch has them: adamw decays by 0.01.
OptimiserOptions optimiser_defaults(OptimiserKind kind);
// Throws Error(invalid_argument) for values that make no sense.
void check_optimiser(const OptimiserOptions& options);

// What one step multiplies with, the same for all parameters.
template <class Number>
struct StepNumbers {
  Number scale = 1;              // of the gradient, by clip
  Number shrink = 1, decay = 0;  // weight decay: of parameters, or added to the gradient
  Number rate = 0;
  Number momentum = 0;                                // sgd
  Number beta1 = 0, beta2 = 0, rest1 = 0, rest2 = 0;  // adam, adamw: 1 - beta in double
  Number epsilon = 0, root = 1;
};
// Of step number `count`, from 1, with a gradient of that norm.
template <class Number>
StepNumbers<Number> step_numbers(const OptimiserOptions& options, std::int64_t count, double norm,
                                 double lr);

// For float and double. Works on one flat array of parameters.
template <class Number>
class Optimiser {
 public:
  // Throws Error(invalid_argument) as check_optimiser does.
  Optimiser(const OptimiserOptions& options, std::size_t parameters);

  // Changes the parameters and returns the gradient's L2 norm before clipping, summed in double in
  // the same order each time. A norm that is not finite changes nothing, here or in the parameters:
  // the caller decides what then. Throws Error(invalid_argument) for arrays of another size and a
  // rate that is negative or not finite.
  double step(std::span<Number> parameters, std::span<const Number> gradient, double lr);

  // Steps that changed something.
  std::int64_t steps() const { return steps_; }

  Bytes bytes() const { return vector_bytes(first_) + vector_bytes(second_); }

  // What a checkpoint keeps: "step", and by PyTorch's names "momentum_buffer", or "exp_avg" and
  // "exp_avg_sq". Looks into this until it is gone.
  std::vector<TensorView> state() const;
  // Throws Error(invalid_argument) for another state than one of these options and as many parameters
  // gives; then nothing has changed. Error(io): a tensor cannot be read; then some may have.
  void restore(std::span<const TensorView> state);

 private:
  void sgd(std::span<Number> parameters, std::span<const Number> gradient,
           const StepNumbers<Number>& with);
  void adam(std::span<Number> parameters, std::span<const Number> gradient,
            const StepNumbers<Number>& with);

  OptimiserOptions options_;
  std::size_t size_;
  std::int64_t steps_ = 0;
  std::vector<Number> first_;   // moment, or momentum; empty: not needed
  std::vector<Number> second_;  // moment
};

}  // namespace ebb
