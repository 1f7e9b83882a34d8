// SPDX-License-Identifier: Apache-2.0
// Recurrent cells for the tests of ebb/torch.h, loops over them by hand, and how the two compare.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "ebb/torch.h"

namespace libtorch_test {

using ebb::torch::Reduce;
using ebb::torch::scan;
using ebb::torch::ScanFunction;
using ebb::torch::ScanOptions;
using ebb::torch::ScanResult;
using ebb::torch::Tensors;
using torch::Tensor;

constexpr std::int64_t kSteps = 41, kBatch = 3, kInputs = 5, kHidden = 8;

// A recurrent cell and what it runs on.
struct Model {
  ScanFunction f;
  Tensors init, params;
  Tensor xs;

  Tensors all() const {
    Tensors tensors = init;
    tensors.push_back(xs);
    tensors.insert(tensors.end(), params.begin(), params.end());
    return tensors;
  }
};

inline Tensors random_leaves(std::int64_t count) {
  Tensors found;
  for (std::int64_t i = 0; i < count; ++i) {
    found.push_back(torch::randn({kBatch, kHidden}).requires_grad_());
  }
  return found;
}

inline Tensor random_inputs(std::int64_t steps) {
  return torch::randn({steps, kBatch, kInputs}).requires_grad_();
}

inline Model lstm(std::int64_t steps = kSteps, double dropout = 0) {
  torch::manual_seed(1);
  torch::nn::LSTMCell cell(kInputs, kHidden);
  const auto f = [cell, dropout](const Tensors& carry, const Tensor& x) mutable {
    auto [h, c] = cell(x, std::make_tuple(carry[0], carry[1]));
    if (dropout > 0) h = torch::dropout(h, dropout, true);
    return std::pair(Tensors{h, c}, h);
  };
  return {f, random_leaves(2), cell->parameters(), random_inputs(steps)};
}

// Its state is used three times in each step and is the output: the order of sums shows.
inline Model gated(std::int64_t steps = kSteps) {
  torch::manual_seed(2);
  const Tensor w = (torch::randn({kInputs, kHidden}) / 2).requires_grad_();
  const Tensor u = (torch::randn({kHidden, kHidden}) / 3).requires_grad_();
  const auto f = [w, u](const Tensors& carry, const Tensor& x) {
    const Tensor& h = carry[0];
    const Tensor gate = torch::sigmoid(x.matmul(w) + h.matmul(u));
    const Tensor next = gate * h + (1 - gate) * torch::tanh(h.matmul(u) + 0.1 * h);
    return std::pair(Tensors{next}, next);
  };
  return {f, random_leaves(1), {w, u}, random_inputs(steps)};
}

// The same, all by hand.
inline ScanResult by_hand(const Model& model, Reduce reduce = Reduce::none) {
  ScanResult result;
  result.carry = model.init;
  Tensors ys;
  for (std::int64_t t = 0; t < model.xs.size(0); ++t) {
    auto [carry, y] = model.f(result.carry, model.xs[t]);
    result.carry = carry;
    ys.push_back(y);
    if (reduce != Reduce::none) result.ys = t == 0 ? y : result.ys + y;
  }
  if (reduce == Reduce::none) result.ys = torch::stack(ys);
  if (reduce == Reduce::mean) result.ys = result.ys / model.xs.size(0);
  return result;
}

// A loss over all outputs and the final carry, of different weights each.
inline Tensor loss_of(const ScanResult& result) {
  Tensor loss = (result.ys * torch::linspace(0.5, 1.5, result.ys.numel()).view_as(result.ys)).sum();
  for (const Tensor& leaf : result.carry) loss = loss + (leaf * leaf).sum();
  return loss;
}

inline Tensors gradients(const Model& model, const ScanResult& result) {
  return torch::autograd::grad({loss_of(result)}, model.all());
}

inline void expect_same(const Tensors& found, const Tensors& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(found[i].defined(), expected[i].defined()) << i;
    if (found[i].defined()) {
      EXPECT_TRUE(torch::equal(found[i], expected[i])) << "tensor " << i;
    }
  }
}

inline ebb::Bytes least_budget(const Model& model, ScanOptions options) {
  options.params = model.params;
  options.budget = 1;
  try {
    scan(model.f, model.init, model.xs, options);
  } catch (const ebb::Error& error) {
    EXPECT_EQ(error.code(), ebb::ErrorCode::infeasible_budget);
    return error.least_budget().value();
  }
  ADD_FAILURE() << "a budget of one byte was enough";
  return 0;
}

// Runs the model in little more than the least budget, which is not plain.
inline ScanResult in_little(const Model& model, ScanOptions options) {
  options.budget = least_budget(model, options) * 5 / 4;
  options.params = model.params;
  ScanResult result = scan(model.f, model.init, model.xs, options);
  EXPECT_TRUE(result.report) << "it ran plainly";
  return result;
}

inline void expect_like_by_hand(const Model& model, const ScanOptions& options) {
  torch::manual_seed(7);
  const ScanResult plain = by_hand(model, options.reduce);
  const Tensors expected = gradients(model, plain);
  const Tensor drawn = torch::rand({3});
  ScanOptions budgeted = options;
  budgeted.budget = least_budget(model, options) * 5 / 4;
  budgeted.params = model.params;
  torch::manual_seed(7);
  const ScanResult found = scan(model.f, model.init, model.xs, budgeted);
  ASSERT_TRUE(found.report) << "it ran plainly";
  const Tensors theirs = gradients(model, found);
  EXPECT_TRUE(torch::equal(torch::rand({3}), drawn)) << "random numbers go on elsewhere";
  EXPECT_GT(found.report->measured.advances, 0);
  expect_same(found.carry, plain.carry);
  expect_same({found.ys}, {plain.ys});
  expect_same(theirs, expected);
}

// The text of the error that the call throws.
inline std::string refused(const Model& model, ScanOptions options) {
  try {
    scan(model.f, model.init, model.xs, options);
  } catch (const ebb::Error& error) {
    return error.what();
  }
  return "not refused";
}

// What the allocator itself says it holds.
struct Allocated final : c10::MemoryReportingInfoBase {
  void reportMemoryUsage(void*, std::int64_t, std::size_t total, std::size_t,
                         c10::Device) override {
    now = static_cast<ebb::Bytes>(total);
    peak = std::max(peak, now);
  }
  bool memoryProfilingEnabled() const override { return true; }
  ebb::Bytes now = 0, peak = 0;
};

}  // namespace libtorch_test
