// SPDX-License-Identifier: Apache-2.0
#include "ebb/train/batch_loss.h"

#include <algorithm>
#include <cmath>

#include "ebb/core/at.h"

namespace ebb {

template <class Number>
BatchLoss<Number>::BatchLoss(const TaskShape& shape, std::int64_t samples)
    : shape_(shape), samples_(samples), shares_(at(shape.outputs)) {}

template <class Number>
void BatchLoss<Number>::set(const Batch& batch, double scale) {
  batch_ = &batch;
  scale_ = scale;
}

// Shares of the classes by softmax, the largest output taken off first.
template <class Number>
static void softmax(std::span<const Number> output, std::vector<double>& shares) {
  const double largest = static_cast<double>(*std::max_element(output.begin(), output.end()));
  double sum = 0;
  for (std::size_t i = 0; i < output.size(); ++i) {
    shares[i] = std::exp(static_cast<double>(output[i]) - largest);
    sum += shares[i];
  }
  for (double& share : shares) share /= sum;
}

template <class Number>
void BatchLoss<Number>::output(std::int64_t t, std::span<const Number> output) {
  const BatchTargets targets(shape_, samples_, *batch_);
  std::size_t place = 0;
  for (std::int64_t b = 0; b < samples_; ++b) {
    if (!targets.has(first_ + t, b, place)) continue;
    const std::span<const Number> own = output.subspan(at(b * shape_.outputs), at(shape_.outputs));
    score_.targets += 1;
    if (shape_.classes) {
      softmax(own, shares_);
      const auto target = at(batch_->classes[place]);
      const auto best = std::max_element(own.begin(), own.end()) - own.begin();
      score_.correct += at(best) == target ? 1 : 0;
      score_.loss -= std::log(std::max(shares_[target], 1e-300));
    } else {
      for (std::size_t i = 0; i < own.size(); ++i) {
        const float target = batch_->targets[place * own.size() + i];
        const double off = static_cast<double>(own[i]) - static_cast<double>(target);
        if (!std::isnan(target)) score_.loss += off * off / static_cast<double>(own.size());
      }
    }
  }
}

template <class Number>
bool BatchLoss<Number>::gradient(std::int64_t t, std::span<const Number> output,
                                 std::span<Number> gradient) {
  const BatchTargets targets(shape_, samples_, *batch_);
  bool any = false;
  std::size_t place = 0;
  for (std::int64_t b = 0; b < samples_; ++b) {
    if (!targets.has(first_ + t, b, place)) continue;
    if (!any) std::fill(gradient.begin(), gradient.end(), Number{0});
    any = true;
    const std::size_t from = at(b * shape_.outputs), count = at(shape_.outputs);
    const std::span<const Number> own = output.subspan(from, count);
    if (shape_.classes) softmax(own, shares_);
    for (std::size_t i = 0; i < count; ++i) {
      double d = 0;
      if (shape_.classes) {
        d = shares_[i] - (at(batch_->classes[place]) == i ? 1 : 0);
      } else {
        const float target = batch_->targets[place * count + i];
        const double off = static_cast<double>(own[i]) - static_cast<double>(target);
        d = std::isnan(target) ? 0 : 2 * off / static_cast<double>(count);
      }
      gradient[from + i] = static_cast<Number>(scale_ * d);
    }
  }
  return any;
}

template class BatchLoss<float>;
template class BatchLoss<double>;

}  // namespace ebb
