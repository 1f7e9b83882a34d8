// SPDX-License-Identifier: Apache-2.0
// One scan in a budget: measured, planned, run by the executor, as one node of the caller's graph.
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ebb/core/bytes.h"
#include "ebb/core/error.h"
#include "ebb/device/ledger.h"
#include "ebb/plan/chain.h"
#include "ebb/plan/plan.h"
#include "ebb/plan/platform.h"
#include "ebb/plan/strategies.h"
#include "ebb/run/handle_run.h"
#include "ebb/torch/blocks.h"
#include "ebb/torch/captures.h"
#include "ebb/torch/measure.h"
#include "ebb/torch/options.h"
#include "ebb/torch/surroundings.h"
#include "ebb/torch/taped_step.h"

namespace ebb::torch::detail {

// Those that want a gradient, each once.
inline Tensors wanting(const Tensors& tensors) {
  Tensors found;
  std::unordered_set<const void*> seen;
  for (const Tensor& tensor : tensors) {
    if (!tensor.defined())
      fail(ErrorCode::invalid_argument, "scan: a tensor of params is undefined");
    if (tensor.requires_grad() && seen.insert(tensor.unsafeGetTensorImpl()).second) {
      found.push_back(tensor);
    }
  }
  return found;
}

// One forward and its backward. Its node keeps it.
class Call final : public ::torch::CustomClassHolder {
 public:
  Call(const ScanFunction& f, const Tensors& init, const Tensor& xs, std::int64_t chunk,
       at::Device device, const ScanOptions& options, bool draws)
      : options_(options),
        device_(device),
        init_(detached(init)),
        blocks_(f, init_, xs, chunk, device, options.reduce != Reduce::none),
        around_(device, options),
        step_(blocks_, around_, init_) {
    around_.draws = draws;
    step_.params = wanting(options.params);
    Known(step_.params).check_independent();
    given_ = init;
    given_.push_back(xs);
    given_.insert(given_.end(), step_.params.begin(), step_.params.end());
  }

  enum class Outcome { ran, plain, draws_later };

  // `plain`: all fits, or nothing wants a gradient. `draws_later`: f drew random numbers, but not
  // in its first block. After these two and after an exception the caller puts `before` back.
  Outcome forward(const Snapshot& before) {
    if (!any_requires_grad(given_)) return Outcome::plain;
    const StepCost cost = look_at_first_block(before);
    const Chain chain = Chain::uniform(blocks_.count, cost);
    const Platform platform{.fast = options_.budget};
    const auto plan = std::make_shared<const Plan>(
        make_plan(chain, platform, {.strategy = options_.strategy, .tapes_stay = true}));
    cost_ = cost;
    if (plan->prediction.advances == 0) return Outcome::plain;
    run_.emplace(step_, chain, plan, Ledger(options_.budget));
    report_ = std::make_shared<Report>(run_->report());
    const at::NoGradGuard no_grad;
    step_.begin(/*mute=*/false);
    blocks_.begin();
    run_->forward();
    if (!around_.draws && around_.drawn_since(before)) return Outcome::draws_later;
    results_ = detached(step_.take_final());
    if (const Tensor ys = blocks_.take_outputs(); ys.defined()) results_.push_back(ys.detach());
    return Outcome::ran;
  }

  // In the order of given(): the gradients of the carry, the outputs come in.
  Tensors backward(Tensors gradients) {
    Tensor of_outputs;
    if (gradients.size() > init_.size()) of_outputs = gradients.back();
    gradients.resize(init_.size());
    Tensors found;
    const auto forget = [&] {
      blocks_.end_backward();
      step_.begin_backward({});
      step_.clear();
    };
    try {
      around_.replay([&] {
        // The graph was retained: what was kept is gone, so the forward runs again.
        if (std::exchange(done_, true)) {
          step_.begin(/*mute=*/true);
          run_->forward();
        }
        step_.begin_backward(std::move(gradients));
        blocks_.begin_backward(of_outputs);
        run_->backward();
        *report_ = run_->report();
      });
      found = step_.adjoint;
      found.push_back(blocks_.end_backward());
      found.insert(found.end(), step_.running.begin(), step_.running.end());
    } catch (...) {
      forget();
      throw;
    }
    forget();
    return found;
  }

  // What the node is a function of: init, xs and the parameters.
  const Tensors& given() const { return given_; }
  // The final carry and, if there are any, the outputs; forgotten here.
  Tensors take_results() { return std::exchange(results_, {}); }
  const std::vector<bool>& differentiable() const { return differentiable_; }
  const std::optional<StepCost>& cost() const { return cost_; }
  std::shared_ptr<const Report> report() const { return report_; }

 private:
  static bool any_requires_grad(const Tensors& tensors) {
    return std::any_of(tensors.begin(), tensors.end(),
                       [](const Tensor& tensor) { return tensor.requires_grad(); });
  }

  // Runs it to see what it uses, changes and weighs.
  StepCost look_at_first_block(const Snapshot& before) {
    Ran ran;
    Bytes tape_bytes = 0;
    {
      // Before the counting, since allocators log what goes then and was there before.
      const Surroundings::OwnCasts casts(around_);
      Counting counted(device_);
      Tape tape = step_.taped(0, init_);
      tape_bytes = left_by(counted, tape);
      ran = std::move(tape.ran);
    }
    around_.draws = around_.draws || around_.drawn_since(before);
    for (const Tensor& leaf : ran.out) differentiable_.push_back(leaf.requires_grad());
    if (!ran.ys.empty()) differentiable_.push_back(any_requires_grad(ran.ys));
    const Snapshot kept = around_.snapshot();
    const Bytes around_bytes = storage_bytes(kept.generators) + storage_bytes(kept.buffers);
    const Bytes state_bytes = std::max(storage_bytes(init_), storage_bytes(ran.out)) + around_bytes;
    step_.start_with(std::move(ran), before);
    StepCost cost;
    cost.state = cost.adjoint = std::max<Bytes>(1, state_bytes);
    // The states before and after are part of it.
    const Bytes beside = cost.state + around_bytes;
    cost.tape = tape_bytes + beside;
    const std::optional<StepCost>& known = options_.cost;
    if (known && known->state == cost.state && known->tape == cost.tape) return *known;
    const Snapshot after = around_.look();
    measure(cost, beside);
    around_.put_back(after);
    return cost;
  }

  // What recording left, without the copies of what f saw.
  Bytes left_by(Counting& counted, const Tape& tape) const {
    Bytes bytes = counted->live();
    for (const Tensors* copies : {&tape.after.snapshot.generators, &tape.after.snapshot.buffers}) {
      for (const Tensor& copy : *copies) {
        if (copy.device().type() == device_.type()) bytes -= storage_bytes({copy});
      }
    }
    return bytes;
  }

  // Runs the first block a few times, forward and back. Gradients go nowhere. A tape is what
  // recording leaves and what is `beside` it.
  void measure(StepCost& cost, Bytes beside) {
    const auto forward = [&] {
      const at::NoGradGuard no_grad;
      const Surroundings::OwnCasts casts(around_);
      blocks_.run(0, init_, blocks_.inputs(0, false));
    };
    const auto record = [&] { return step_.taped(0, init_); };
    const auto reverse = [&](const Tape& tape) {
      const auto ones = [](const Tensors& tensors) {
        Tensors found;
        for (const Tensor& t : tensors) {
          found.push_back(t.requires_grad() ? at::ones_like(t) : Tensor());
        }
        return found;
      };
      step_.adjoint = ones(tape.ran.out);
      step_.pull_back(tape, ones(tape.ran.ys), {});
    };
    const QuietHooks quiet(step_.params);
    step_.begin_backward({});
    {
      // The first round, too: what goes later is to be known.
      Counting counted(device_);
      forward();
      reverse(record());
      const Bytes before = counted->live();
      counted->take_peak();
      forward();
      const Bytes forward_peak = counted->take_peak();
      const Tape tape = record();
      const Bytes record_peak = counted->take_peak();
      const Bytes left = counted->live() - before;
      cost.tape = left_by(counted, tape) - before + beside;
      reverse(tape);
      const Bytes reverse_peak = counted->take_peak();
      cost.scratch = std::max({forward_peak, record_peak - left, reverse_peak});
      step_.begin_backward({});
    }
    constexpr int rounds = 2;
    cost.forward = cost.record = cost.backward = std::numeric_limits<double>::infinity();
    for (int round = 0; round < rounds; ++round) {
      std::optional<Tape> tape;
      cost.forward = std::min(cost.forward, seconds_of(device_, forward));
      cost.record = std::min(cost.record, seconds_of(device_, [&] { tape.emplace(record()); }));
      cost.backward = std::min(cost.backward, seconds_of(device_, [&] { reverse(*tape); }));
    }
    step_.begin_backward({});
  }

  ScanOptions options_;
  at::Device device_;
  Tensors init_, given_;
  Blocks blocks_;
  Surroundings around_;
  TapedStep step_;
  std::optional<HandleRun> run_;
  std::optional<StepCost> cost_;
  std::shared_ptr<Report> report_;
  std::vector<bool> differentiable_;
  Tensors results_;
  bool done_ = false;
};

class CallNode : public ::torch::autograd::Function<CallNode> {
 public:
  static Tensors forward(::torch::autograd::AutogradContext* context,
                         const c10::intrusive_ptr<Call>& call, at::TensorList given) {
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    context->save_for_backward(given.vec());
    context->set_materialize_grads(false);
    Tensors results = call->take_results(), fixed;
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (!call->differentiable()[i]) fixed.push_back(results[i]);
    }
    context->mark_non_differentiable(fixed);
    return results;
  }

  static Tensors backward(::torch::autograd::AutogradContext* context, Tensors gradients) {
    // Throws where the caller has changed one since, and where the graph is freed.
    context->get_saved_variables();
    if (at::GradMode::is_enabled()) {
      fail(ErrorCode::invalid_argument,
           "scan: create_graph asks for second derivatives, which only plain autograd has; leave "
           "the budget unlimited for them");
    }
    const auto call =
        c10::static_intrusive_pointer_cast<Call>(context->saved_data["call"].toCapsule());
    Tensors found = call->backward(std::move(gradients));
    found.insert(found.begin(), Tensor());
    return found;
  }
};

}  // namespace ebb::torch::detail
