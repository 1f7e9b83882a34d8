// SPDX-License-Identifier: Apache-2.0
// The tensors that a function differentiates through beside its arguments.
#pragma once

#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <set>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ebb/core/error.h"
#include "ebb/torch/options.h"

namespace ebb::torch::detail {

namespace graph = ::torch::autograd;

// A gradient that is not asked for is silently dropped by autograd: so graphs are walked, and
// whatever they reach is known or refused.
class Known {
 public:
  explicit Known(const Tensors& tensors) {
    for (const Tensor& tensor : tensors) {
      if (!tensor.requires_grad()) continue;
      held_.push_back(graph::impl::gradient_edge(tensor));
      ends_.emplace(held_.back().function.get(), held_.back().input_nr);
    }
  }

  // Nodes numbered below `since` were there before f ran.
  void check(const Tensors& outputs, std::uint64_t since, std::int64_t block) const {
    std::vector<graph::Edge> starts;
    for (const Tensor& output : outputs) {
      if (output.requires_grad()) starts.push_back(graph::impl::gradient_edge(output));
    }
    walk(starts, [&](const graph::Edge& edge, bool known) {
      if (known) return false;
      if (const auto* leaf = dynamic_cast<const graph::AccumulateGrad*>(edge.function.get())) {
        fail(ErrorCode::invalid_argument, "scan: f, in block ", block,
             ", differentiates through a tensor of shape ", leaf->variable.sizes(),
             " that is not in params; name it there, so that its gradient is not lost");
      }
      if (edge.function->sequence_nr() < since) {
        fail(ErrorCode::invalid_argument, "scan: f, in block ", block,
             ", uses a tensor that was computed outside of it (", edge.function->name(),
             ") and is not in params; name it there, or hand it in through init or xs, so that its "
             "gradient is not lost");
      }
      return true;
    });
  }

  // Autograd gives total derivatives: none of the tensors may be computed from another.
  void check_independent() const {
    for (const graph::Edge& end : held_) {
      walk(end.function->next_edges(), [&](const graph::Edge&, bool known) {
        if (known) {
          fail(ErrorCode::invalid_argument,
               "scan: a tensor of params was computed from another one (", end.function->name(),
               "); hand it in through init or xs, or compute it inside f");
        }
        return true;
      });
    }
  }

 private:
  template <class Enter>
  void walk(const std::vector<graph::Edge>& starts, const Enter& enter) const {
    std::vector<graph::Node*> stack;
    std::unordered_set<graph::Node*> seen;
    const auto look = [&](const std::vector<graph::Edge>& edges) {
      for (const graph::Edge& edge : edges) {
        graph::Node* node = edge.function.get();
        if (node == nullptr || !enter(edge, ends_.contains({node, edge.input_nr}))) continue;
        if (seen.insert(node).second) stack.push_back(node);
      }
    };
    look(starts);
    while (!stack.empty()) {
      graph::Node* node = stack.back();
      stack.pop_back();
      look(node->next_edges());
    }
  }

  std::vector<graph::Edge> held_;
  std::set<std::pair<graph::Node*, std::uint32_t>> ends_;
};

// Hooks of parameters are for the whole gradient, not for parts of it.
class QuietHooks {
 public:
  explicit QuietHooks(const Tensors& params) {
    for (const Tensor& param : params) {
      held_.push_back(graph::impl::gradient_edge(param));
      kept_.emplace_back();
      kept_.back().swap(held_.back().function->tensor_pre_hooks());
    }
  }
  QuietHooks(const QuietHooks&) = delete;
  QuietHooks& operator=(const QuietHooks&) = delete;
  ~QuietHooks() {
    for (std::size_t i = held_.size(); i-- > 0;) {
      kept_[i].swap(held_[i].function->tensor_pre_hooks());
    }
  }

 private:
  using Hooks = std::vector<std::unique_ptr<graph::FunctionPreHook>>;
  std::vector<graph::Edge> held_;
  std::vector<Hooks> kept_;
};

}  // namespace ebb::torch::detail
