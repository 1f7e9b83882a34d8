// SPDX-License-Identifier: Apache-2.0
// The steps of a scan: `chunk` calls of f are one block.
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ebb/core/error.h"
#include "ebb/torch/options.h"

namespace ebb::torch::detail {

inline Tensors detached(const Tensors& tensors) {
  Tensors found;
  for (const Tensor& tensor : tensors) found.push_back(tensor.detach());
  return found;
}

// What stays alike from time step to time step.
struct Kind {
  explicit Kind(const Tensor& tensor) : defined(tensor.defined()) {
    if (!defined) return;
    sizes = tensor.sizes().vec();
    dtype = tensor.scalar_type();
    device = tensor.device();
  }
  bool operator==(const Kind&) const = default;
  std::string text() const {
    return defined ? c10::str(dtype, " ", at::IntArrayRef(sizes), " on ", device) : "undefined";
  }

  bool defined;
  std::vector<std::int64_t> sizes;
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;
};

// f, its results checked.
class Checked {
 public:
  Checked(ScanFunction f, const Tensors& init)
      : f_(std::move(f)), carry_(init.begin(), init.end()) {}

  std::pair<Tensors, Tensor> operator()(const Tensors& carry, const Tensor& x) {
    std::vector<std::int64_t> versions;
    for (const Tensor& leaf : carry) versions.push_back(leaf._version());
    auto found = f_(carry, x);
    for (std::size_t i = 0; i < carry.size(); ++i) {
      if (carry[i]._version() == versions[i]) continue;
      fail(ErrorCode::invalid_argument, "scan: f changed carry[", i,
           "] in place, so it cannot be recomputed from it; change a clone instead");
    }
    const auto& [out, y] = found;
    if (out.size() != carry_.size()) {
      fail(ErrorCode::invalid_argument, "scan: f returned a carry of ", out.size(),
           " tensors; init has ", carry_.size());
    }
    for (std::size_t i = 0; i < out.size(); ++i) check_alike("carry", carry_[i], out[i]);
    if (!y_) y_.emplace(y);
    check_alike("y", *y_, y);
    return found;
  }

 private:
  static void check_alike(const char* what, const Kind& before, const Tensor& found) {
    const Kind now(found);
    if (now == before) return;
    fail(ErrorCode::invalid_argument, "scan: f returned a ", what, " that is ", now.text(),
         "; it was ", before.text(), " before and must stay alike");
  }

  ScanFunction f_;
  std::vector<Kind> carry_;
  std::optional<Kind> y_;
};

struct Ran {
  Tensors out;
  Tensors ys;     // none, one a time step, or their sum
  int same = -1;  // the leaf of out that is the very tensor of the last y
};

class Blocks {
 public:
  Blocks(const ScanFunction& f, const Tensors& init, const Tensor& xs, std::int64_t chunk,
         at::Device device, bool sums)
      : f_(f, init), xs_(xs), chunk_(chunk), device_(device), sums_(sums) {
    count = (length() + chunk - 1) / chunk;
  }

  std::int64_t count;

  // On the compute device and cut off from any graph; with `gradients` a leaf that requires its.
  Tensor inputs(std::int64_t block, bool gradients) const {
    const auto [start, end] = span(block);
    const Tensor part = xs_.detach().slice(0, start, end).to(device_, /*non_blocking=*/true);
    return part.set_requires_grad(gradients && xs_.requires_grad());
  }

  Ran run(std::int64_t block, const Tensors& carry, const Tensor& inputs) {
    Ran ran{carry, {}};
    // The sum goes on from the blocks before. When a block runs again its value is of no use, but
    // the addition is: gradients of ys that are carries too are added in the order of a plain loop.
    Tensor sum = sum_;
    Tensor last;
    for (const Tensor& x : inputs.unbind(0)) {
      std::tie(ran.out, last) = f_(ran.out, x);
      if (!last.defined()) continue;
      if (!sums_) {
        ran.ys.push_back(last);
      } else {
        if (!sum.defined() && block > 0) sum = last.detach();
        sum = sum.defined() ? sum + last : last;
      }
    }
    if (sums_ && sum.defined()) ran.ys.push_back(sum);
    // Of a sum only the first y meets what comes above it before the steps above do.
    const bool goes_first = !sums_ || (block == 0 && chunk_ == 1);
    for (std::size_t i = ran.out.size(); i-- > 0 && goes_first && last.defined();) {
      if (ran.out[i].is_same(last)) ran.same = static_cast<int>(i);
    }
    return ran;
  }

  // A forward begins, whose outputs are kept.
  void begin() {
    outputs_ = sum_ = Tensor();
    same_.assign(static_cast<std::size_t>(count), -1);
  }
  // The block has run for the first time.
  void keep(std::int64_t block, const Ran& ran) {
    same_[static_cast<std::size_t>(block)] = ran.same;
    if (ran.ys.empty()) return;
    if (sums_) {
      sum_ = ran.ys[0].detach();
      return;
    }
    const Tensors ys = detached(ran.ys);
    if (!outputs_.defined()) {
      std::vector<std::int64_t> sizes = ys[0].sizes().vec();
      sizes.insert(sizes.begin(), length());
      outputs_ = at::empty(sizes, ys[0].options());
    }
    const auto [start, end] = span(block);
    Tensor part = outputs_.slice(0, start, end);
    at::stack_out(part, ys);
  }
  // Forgotten here; undefined where f gives none.
  Tensor take_outputs() {
    Tensor found = sums_ ? sum_ : outputs_;
    outputs_ = sum_ = Tensor();
    return found;
  }

  void begin_backward(const Tensor& of_outputs) {
    of_outputs_ = of_outputs;
    of_inputs_ = xs_.requires_grad() ? at::zeros_like(xs_) : Tensor();
  }
  // One for each of its ys.
  Tensors output_gradients(std::int64_t block) const {
    if (!of_outputs_.defined()) return {};
    if (sums_) return {of_outputs_};
    const auto [start, end] = span(block);
    return of_outputs_.slice(0, start, end).unbind(0);
  }
  int same_as_last_output(std::int64_t block) const {
    return same_[static_cast<std::size_t>(block)];
  }
  void take_input_gradient(std::int64_t block, const Tensor& gradient) {
    const auto [start, end] = span(block);
    of_inputs_.slice(0, start, end).copy_(gradient);
  }
  Tensor end_backward() {
    of_outputs_ = Tensor();
    return std::exchange(of_inputs_, Tensor());
  }

 private:
  std::int64_t length() const { return xs_.size(0); }
  std::pair<std::int64_t, std::int64_t> span(std::int64_t block) const {
    return {block * chunk_, std::min(length(), (block + 1) * chunk_)};
  }

  Checked f_;
  Tensor xs_;
  std::int64_t chunk_;
  at::Device device_;
  bool sums_;
  std::vector<int> same_;
  Tensor outputs_, sum_, of_outputs_, of_inputs_;
};

}  // namespace ebb::torch::detail
