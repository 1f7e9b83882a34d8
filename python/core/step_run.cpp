// SPDX-License-Identifier: Apache-2.0
// Runs over bytes: the executor calls a Python object with the addresses of states, tapes and
// adjoints in its own memory. What lies there is that object's business.
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ebb/run/run.h"
#include "python/core/topics.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace ebb::python {
namespace {

std::uintptr_t address(const std::byte* memory) { return reinterpret_cast<std::uintptr_t>(memory); }

// How long the calls of one kind took. The first may compile what it runs, and counts only where
// there is no other.
class Spent {
 public:
  template <typename Call>
  void time(std::int64_t steps, Call&& call) {
    const auto start = std::chrono::steady_clock::now();
    call();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    if (calls_++ < 2) {
      seconds_ = 0;
      steps_ = 0;
    }
    seconds_ += taken.count();
    steps_ += steps;
  }
  // Of one step; nothing where none ran.
  std::optional<double> each() const {
    if (steps_ == 0) return std::nullopt;
    return seconds_ / static_cast<double>(steps_);
  }

 private:
  std::int64_t calls_ = 0;
  std::int64_t steps_ = 0;
  double seconds_ = 0;
};

// Takes Python's lock for each call: the run itself goes without.
class PythonStep : public Step {
 public:
  PythonStep(const nb::object& calls, std::int64_t steps, const StepBytes& bytes, Bytes after)
      : steps_(steps),
        bytes_(bytes),
        after_(after),
        begin_(calls.attr("begin")),
        ended_(calls.attr("ended")),
        advance_(calls.attr("advance")),
        record_(calls.attr("record")),
        reverse_(calls.attr("reverse")) {}

  std::int64_t steps() const override { return steps_; }
  StepBytes bytes(std::int64_t) const override { return bytes_; }
  Bytes state_in_tape(std::int64_t) const override { return after_; }

  void begin() override {
    const nb::gil_scoped_acquire python;
    begin_();
  }
  std::int64_t advance(const StepSpan& span, std::byte* state, std::byte* scratch) override {
    const nb::gil_scoped_acquire python;
    std::int64_t end = span.to;
    spent_forward_.time(span.to - span.from, [&] {
      end = nb::cast<std::int64_t>(
          advance_(span.from, span.to, span.first, address(state), address(scratch)));
    });
    return end;
  }
  bool ended(std::int64_t step, const std::byte* state) override {
    const nb::gil_scoped_acquire python;
    return nb::cast<bool>(ended_(step, address(state)));
  }
  void record(const StepSpan& span, std::byte* state, const Tapes& tapes, std::byte*) override {
    const nb::gil_scoped_acquire python;
    spent_record_.time(span.to - span.from, [&] {
      record_(span.from, span.to, span.first, address(state), address(tapes.data), tapes.stride);
    });
  }
  void reverse(std::int64_t from, std::int64_t to, const Tapes& tapes, std::byte* adjoint,
               std::byte* scratch) override {
    const nb::gil_scoped_acquire python;
    spent_backward_.time(to - from, [&] {
      reverse_(from, to, address(tapes.data), tapes.stride, address(adjoint), address(scratch));
    });
  }
  // Seconds of a step: forward, record, backward.
  std::array<std::optional<double>, 3> seconds() const {
    return {spent_forward_.each(), spent_record_.each(), spent_backward_.each()};
  }

 private:
  std::int64_t steps_;
  StepBytes bytes_;
  Bytes after_;  // where in a tape the state after the step lies
  nb::object begin_, ended_, advance_, record_, reverse_;
  Spent spent_forward_, spent_record_, spent_backward_;
};

class PythonRun {
 public:
  PythonRun(const nb::object& calls, std::int64_t steps, Bytes state, Bytes tape, Bytes after,
            Bytes scratch, RunOptions options)
      : state_(static_cast<std::size_t>(state)),
        step_(calls, steps, {.state = state, .tape = tape, .adjoint = state, .scratch = scratch},
              after) {
    const nb::gil_scoped_release python;
    run_ = std::make_unique<Run>(step_, std::move(options));
  }

  // All of them have the bytes of a state.
  void forward(std::uintptr_t initial, std::uintptr_t final) {
    const nb::gil_scoped_release python;
    run_->forward(given(initial), room(final));
  }
  void backward(std::uintptr_t adjoint, std::uintptr_t gradient) {
    const nb::gil_scoped_release python;
    run_->backward(given(adjoint), room(gradient));
  }
  const Run& run() const { return *run_; }
  const PythonStep& step() const { return step_; }

 private:
  std::span<const std::byte> given(std::uintptr_t at) const {
    return {reinterpret_cast<const std::byte*>(at), state_};
  }
  std::span<std::byte> room(std::uintptr_t at) const {
    return {reinterpret_cast<std::byte*>(at), state_};
  }

  std::size_t state_;
  PythonStep step_;
  std::unique_ptr<Run> run_;
};

}  // namespace

void bind_step_run(nb::module_& module) {
  nb::class_<RunOptions>(module, "RunOptions")
      .def(nb::init<>())
      .def_rw("budget", &RunOptions::budget)
      .def_rw("tiers", &RunOptions::tiers)
      .def_rw("strategy", &RunOptions::strategy)
      .def_rw("slots", &RunOptions::slots, nb::arg().none())
      .def_rw("intervals", &RunOptions::intervals)
      .def_rw("period", &RunOptions::period, nb::arg().none())
      .def_rw("sync", &RunOptions::sync)
      .def_rw("chain", &RunOptions::chain, nb::arg().none())
      .def_rw("platform", &RunOptions::platform, nb::arg().none())
      .def_rw("ledger", &RunOptions::ledger, nb::arg().none())
      .def_rw("trace_events", &RunOptions::trace_events)
      .def_prop_rw(
          "tier_seconds", [](const RunOptions& o) { return o.profile.tier_seconds; },
          [](RunOptions& o, double seconds) { o.profile.tier_seconds = seconds; })
      .def_prop_rw(
          "expected_steps", [](const RunOptions& o) { return o.profile.expected_steps; },
          [](RunOptions& o, std::int64_t steps) { o.profile.expected_steps = steps; });
  module.attr("UNKNOWN") = Step::kUnknown;
  nb::class_<PythonRun>(module, "StepRun")
      .def(nb::init<const nb::object&, std::int64_t, Bytes, Bytes, Bytes, Bytes, RunOptions>(),
           "calls"_a, "steps"_a, "state"_a, "tape"_a, "after"_a, "scratch"_a, "options"_a)
      .def("forward", &PythonRun::forward, "initial"_a, "final"_a)
      .def("backward", &PythonRun::backward, "adjoint"_a, "gradient"_a)
      .def("report", [](const PythonRun& run) { return run.run().report(); })
      .def("seconds", [](const PythonRun& run) { return run.step().seconds(); })
      .def("platform", [](const PythonRun& run) { return run.run().platform(); })
      .def("plan",
           [](const PythonRun& run) { return std::make_shared<const Plan>(run.run().plan()); })
      .def("trace_json", [](const PythonRun& run) { return run.run().trace_json(); });
}

}  // namespace ebb::python
