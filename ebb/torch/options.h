// SPDX-License-Identifier: Apache-2.0
// What a scan is given and what it gives.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ebb/core/bytes.h"
#include "ebb/plan/chain.h"
#include "ebb/run/report.h"

namespace ebb::torch {

using at::Tensor;
using Tensors = std::vector<Tensor>;
// From the carry and x to the next carry, of the same shapes and dtypes, and y, which is undefined
// in all time steps or in none. What it refers to must live until backward has run.
using ScanFunction = std::function<std::pair<Tensors, Tensor>(Tensors carry, Tensor x)>;

enum class Reduce { none, sum, mean };

struct ScanOptions {
  Bytes budget = kUnlimited;      // for what backward needs; unlimited: plain autograd
  std::string strategy = "auto";  // as in make_plan
  std::int64_t chunk = 0;         // time steps kept or recomputed together; 0: chosen by the length
  // Every tensor beside its arguments that f differentiates through; others are refused.
  Tensors params = {};
  Tensors buffers = {};  // those that f changes in place (running statistics): changed once only
  Reduce reduce = Reduce::none;    // of the ys: then no memory grows with time
  bool preserve_rng_state = true;  // random numbers (dropout) are drawn again alike
  // Of an earlier result: spares measuring while its bytes are still right.
  std::optional<StepCost> cost = {};
};

struct ScanResult {
  Tensors carry = {};                 // after the last time step
  Tensor ys = {};                     // stacked, or reduced
  std::optional<StepCost> cost = {};  // of `chunk` time steps, where they were measured
  // What was planned; filled in when backward has run. Null: plain autograd did it.
  std::shared_ptr<const Report> report = {};
};

}  // namespace ebb::torch
