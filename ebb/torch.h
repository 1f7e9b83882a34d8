// SPDX-License-Identifier: Apache-2.0
// For LibTorch: a loop over time whose gradients are computed in a budget, and operations that keep
// less for the backward pass (pooled_conv, norm_relu_conv, batch_norm_int8, relu_bits,
// max_pool_small). Header only; a program that includes it links torch beside ebb::ebb.
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>

#include "ebb/core/error.h"
#include "ebb/torch/batch_norm_int8.h"
#include "ebb/torch/blocks.h"
#include "ebb/torch/call.h"
#include "ebb/torch/max_pool_small.h"
#include "ebb/torch/norm_relu_conv.h"
#include "ebb/torch/options.h"
#include "ebb/torch/pooled_conv.h"
#include "ebb/torch/relu_bits.h"
#include "ebb/torch/surroundings.h"

namespace ebb::torch {
namespace detail {

// As one would write it by hand.
inline ScanResult plain(const ScanFunction& f, const Tensors& init, const Tensor& xs,
                        at::Device device, bool sums) {
  Checked checked(f, init);
  ScanResult result{.carry = init};
  Tensors ys;
  Tensor y;
  for (const Tensor& x : xs.to(device, /*non_blocking=*/true).unbind(0)) {
    std::tie(result.carry, y) = checked(result.carry, x);
    if (!y.defined()) continue;
    if (!sums) {
      ys.push_back(y);
    } else {
      result.ys = result.ys.defined() ? result.ys + y : y;
    }
  }
  if (!ys.empty()) result.ys = at::stack(ys);
  return result;
}

inline ScanResult in_budget(const ScanFunction& f, const Tensors& init, const Tensor& xs,
                            std::int64_t chunk, at::Device device, const ScanOptions& options) {
  Surroundings around(device, options);
  const Snapshot before = around.look();
  const auto call = [&](bool draws) {
    return c10::make_intrusive<Call>(f, init, xs, chunk, device, options, draws);
  };
  try {
    auto one = call(false);
    auto outcome = one->forward(before);
    if (outcome == Call::Outcome::draws_later) {
      around.put_back(before);
      one = call(true);
      outcome = one->forward(before);
    }
    if (outcome == Call::Outcome::ran) {
      const Tensors found = CallNode::apply(one, at::TensorList(one->given()));
      const auto carries = found.begin() + static_cast<std::ptrdiff_t>(init.size());
      return {.carry = {found.begin(), carries},
              .ys = carries == found.end() ? Tensor() : *carries,
              .cost = one->cost(),
              .report = one->report()};
    }
    around.put_back(before);
    ScanResult result = plain(f, init, xs, device, options.reduce != Reduce::none);
    result.cost = one->cost();
    return result;
  } catch (...) {
    around.put_back(before);
    throw;
  }
}

inline void check(const Tensors& init, const Tensor& xs, const ScanOptions& options) {
  for (std::size_t i = 0; i < init.size(); ++i) {
    if (!init[i].defined()) fail(ErrorCode::invalid_argument, "scan: init[", i, "] is undefined");
  }
  if (!xs.defined() || xs.dim() == 0) {
    fail(ErrorCode::invalid_argument,
         "scan: xs is a tensor without dimensions; the first dimension is time");
  }
  if (options.budget < 0) {
    fail(ErrorCode::invalid_argument, "scan: budget is ", options.budget,
         "; it is 0 bytes or more");
  }
  if (options.chunk < 0) {
    fail(ErrorCode::invalid_argument, "scan: chunk is ", options.chunk,
         "; it is a number of time steps, or 0 for a choice by the length");
  }
}

}  // namespace detail

// Runs (carry, y) = f(carry, x) over xs, whose first dimension is time, from init. Gradients reach
// init, xs and options.params bit-identical to a plain loop. What waits in host memory is brought
// to the device of init block by block. Throws Error, with least_budget() where the budget is too
// small; what f throws comes through unchanged, and random numbers and buffers are as they were.
//
//   auto result = ebb::torch::scan(
//       [&](ebb::torch::Tensors carry, at::Tensor x) {
//         auto [h, c] = cell(x, std::make_tuple(carry[0], carry[1]));
//         return std::pair(ebb::torch::Tensors{h, c}, h);
//       },
//       {h0, c0}, xs, {.budget = 64 << 20, .params = cell->parameters()});
//   result.ys.sum().backward();
inline ScanResult scan(const ScanFunction& f, const Tensors& init, const Tensor& xs,
                       const ScanOptions& options = {}) {
  constexpr std::int64_t steps_wanted = 200, longest_chunk = 32;
  detail::check(init, xs, options);
  const std::int64_t length = xs.size(0);
  if (length == 0) return {.carry = init};
  const at::Device device = init.empty() ? xs.device() : init[0].device();
  ScanResult result;
  if (options.budget == kUnlimited || !at::GradMode::is_enabled()) {
    result = detail::plain(f, init, xs, device, options.reduce != Reduce::none);
  } else {
    std::int64_t chunk = options.chunk;
    if (chunk == 0) chunk = std::clamp<std::int64_t>(length / steps_wanted, 1, longest_chunk);
    for (bool done = false; !done;) {
      try {
        result = detail::in_budget(f, init, xs, std::min(chunk, length), device, options);
        done = true;
      } catch (const Error& error) {
        // Shorter blocks weigh less.
        if (error.code() != ErrorCode::infeasible_budget || options.chunk != 0 || chunk == 1) throw;
        chunk = std::max<std::int64_t>(1, chunk / 4);
      }
    }
  }
  if (options.reduce == Reduce::mean && result.ys.defined()) result.ys = result.ys / length;
  return result;
}

}  // namespace ebb::torch
