// SPDX-License-Identifier: Apache-2.0
// A Step of tensors for the executor: states are lists of tensors, tapes are autograd graphs.
// Gradients are bit-identical to plain autograd's, however the steps are cut: autograd adds the gradients
// of a tensor in the order in which its uses are reached, last first, so what later blocks gave is
// put in first, as the gradient of the tensor itself.
#pragma once

#include <ATen/SequenceNumber.h>
#include <torch/torch.h>

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "ebb/core/error.h"
#include "ebb/plan/action.h"
#include "ebb/run/handle_run.h"
#include "ebb/torch/blocks.h"
#include "ebb/torch/captures.h"
#include "ebb/torch/options.h"
#include "ebb/torch/surroundings.h"

namespace ebb::torch::detail {

struct State {
  State(Tensors carry, Snapshot around) : leaves(std::move(carry)), snapshot(std::move(around)) {
    for (const Tensor& leaf : leaves) versions.push_back(leaf._version());
  }

  Tensors leaves;
  Snapshot snapshot;
  std::vector<std::int64_t> versions;
};

struct Tape {
  Tensors carry;
  Tensor inputs;
  Ran ran;
  State after;
};

class TapedStep final : public HandleStep {
 public:
  TapedStep(Blocks& blocks, Surroundings& around, const Tensors& initial)
      : blocks_(blocks), around_(around), initial_(initial, {}) {}

  Tensors params;
  Tensors adjoint, running;  // gradients of the carry and of params so far

  // The first block has run already; `before` is what it saw.
  void start_with(Ran head, Snapshot before) {
    head_ = std::move(head);
    head_->out = detached(head_->out);
    head_->ys = detached(head_->ys);
    before_ = std::move(before);
    initial_.snapshot = before_;
    if (!around_.draws) initial_.snapshot.generators.clear();
  }
  // A forward begins at the initial state; `mute` if its outputs are with the caller already.
  void begin(bool mute) {
    clear();
    mute_ = mute;
    if (!head_) around_.put_back(initial_.snapshot);
    live_ = initial_.leaves;
  }
  void begin_backward(Tensors of_carry) {
    adjoint = std::move(of_carry);
    running.assign(params.size(), Tensor());
  }
  void clear() {
    kept_.clear();
    tapes_.clear();
    live_.clear();
  }
  Tensors take_final() { return std::exchange(live_, {}); }

  std::int64_t advance(const StepSpan& span) override {
    const at::NoGradGuard no_grad;
    const Surroundings::OwnCasts casts(around_);
    for (std::int64_t block = span.from; block < span.to; ++block) {
      const bool head = block == 0 && head_;
      const Ran ran = head ? *std::exchange(head_, {})
                           : blocks_.run(block, live_, blocks_.inputs(block, false));
      live_ = detached(ran.out);
      if (span.first && !mute_) blocks_.keep(block, ran);
    }
    return span.to;
  }

  void record(const StepSpan& span) override {
    if (span.from == 0 && std::exchange(head_, {})) around_.put_back(before_);
    for (std::int64_t block = span.from; block < span.to; ++block) {
      const Tape& tape = tapes_.emplace(block, taped(block, live_)).first->second;
      live_ = tape.after.leaves;
      if (span.first && !mute_) blocks_.keep(block, tape.ran);
    }
  }

  // What the block reaches is in params, or it throws.
  Tape taped(std::int64_t block, const Tensors& live) {
    const at::AutoGradMode gradients(true);
    const Surroundings::OwnCasts casts(around_);
    Tensors carry;
    for (const Tensor& leaf : live) {
      carry.push_back(leaf.detach());
      if (::torch::autograd::isDifferentiableType(leaf.scalar_type()))
        carry.back().set_requires_grad(true);
    }
    Tensor inputs = blocks_.inputs(block, true);
    const std::uint64_t since = at::sequence_number::peek();
    Ran ran = blocks_.run(block, carry, inputs);
    Tensors known = carry;
    known.push_back(inputs);
    known.insert(known.end(), params.begin(), params.end());
    Tensors outputs = ran.out;
    outputs.insert(outputs.end(), ran.ys.begin(), ran.ys.end());
    Known(known).check(outputs, since, block);
    State after(detached(ran.out), around_.snapshot());
    return {std::move(carry), std::move(inputs), std::move(ran), std::move(after)};
  }

  void reverse(std::int64_t from, std::int64_t to) override {
    live_.clear();
    const QuietHooks quiet(params);
    for (std::int64_t block = to; block-- > from;) {
      const auto tape = tapes_.extract(block);
      reverse(block, tape.mapped());
    }
  }

  // From the adjoint after the tape's block to the one before it; adds to the running gradients.
  // Returns the gradient of the inputs. `given` are those of the ys, `seeds` come first in those of
  // the carry.
  Tensor pull_back(const Tape& tape, const Tensors& given, const Tensors& seeds) {
    Tensors roots, gradients;
    const auto add = [&](const Tensors& tensors, const Tensors& theirs) {
      for (std::size_t i = 0; i < std::min(tensors.size(), theirs.size()); ++i) {
        if (!theirs[i].defined() || !tensors[i].requires_grad()) continue;
        roots.push_back(tensors[i]);
        gradients.push_back(theirs[i]);
      }
    };
    add(tape.ran.out, adjoint);
    add(tape.ran.ys, given);
    add(tape.carry, seeds);
    add(params, running);
    Tensors wanted;
    for (const Tensor& leaf : tape.carry) {
      if (leaf.requires_grad()) wanted.push_back(leaf);
    }
    if (tape.inputs.requires_grad()) wanted.push_back(tape.inputs);
    wanted.insert(wanted.end(), params.begin(), params.end());
    Tensors found(wanted.size());
    if (!roots.empty() && !wanted.empty()) {
      found = ::torch::autograd::grad(roots, wanted, gradients, /*retain_graph=*/false,
                                      /*create_graph=*/false, /*allow_unused=*/true);
    }
    auto next = found.begin();
    adjoint.assign(tape.carry.size(), Tensor());
    for (std::size_t i = 0; i < tape.carry.size(); ++i) {
      if (tape.carry[i].requires_grad()) adjoint[i] = *next++;
    }
    const Tensor of_inputs = tape.inputs.requires_grad() ? *next++ : Tensor();
    running.assign(next, found.end());
    return of_inputs;
  }

  void copy(const Copy& copy) override {
    if (copy.from == Place::work) {
      kept_.insert_or_assign(copy.step, State(live_, around_.snapshot()));
      return;
    }
    const State& state = held(copy.step);
    if (copy.to == Place::fast) {
      kept_.insert_or_assign(copy.step, State(state));
      return;
    }
    for (std::size_t i = 0; i < state.leaves.size(); ++i) {
      if (state.leaves[i]._version() == state.versions[i]) continue;
      fail(ErrorCode::invalid_argument, "scan: carry[", i,
           "] was changed in place after f returned it, so a step cannot be recomputed from it; "
           "change a clone instead");
    }
    live_ = state.leaves;
    around_.put_back(state.snapshot);
  }

  void drop(const Drop& drop) override {
    if (drop.item == Item::tape) {
      tapes_.erase(drop.step);
    } else {
      kept_.erase(drop.step);
    }
  }

 private:
  void reverse(std::int64_t block, const Tape& tape) {
    Tensors given = blocks_.output_gradients(block);
    Tensors seeds;
    // A carry that is an output itself: its gradient as an output goes in with the block above,
    // before all others, as in a plain loop.
    if (!given.empty() && block + 1 < blocks_.count && blocks_.same_as_last_output(block) >= 0) {
      given.back() = Tensor();
    }
    if (!given.empty() && block > 0 && blocks_.same_as_last_output(block - 1) >= 0) {
      seeds.resize(tape.carry.size());
      seeds[static_cast<std::size_t>(blocks_.same_as_last_output(block - 1))] =
          blocks_.output_gradients(block - 1).back();
    }
    const Tensor of_inputs = pull_back(tape, given, seeds);
    if (of_inputs.defined()) blocks_.take_input_gradient(block, of_inputs);
  }

  const State& held(std::int64_t step) const {
    if (const auto found = kept_.find(step); found != kept_.end()) return found->second;
    return step == 0 ? initial_ : tapes_.at(step - 1).after;
  }

  Blocks& blocks_;
  Surroundings& around_;
  State initial_;
  Snapshot before_;
  std::optional<Ran> head_;
  bool mute_ = false;
  std::map<std::int64_t, State> kept_;
  std::map<std::int64_t, Tape> tapes_;
  Tensors live_;
};

}  // namespace ebb::torch::detail
