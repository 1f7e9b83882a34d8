// SPDX-License-Identifier: Apache-2.0
// A Step of one's own: a small recurrent net that foretells a signal, with trainable weights, a loss
// at every step, inputs made when they are asked for and tapes of its own layout.
//   h' = tanh(W h + U x),  loss = sum over steps of (h'[0] - target)^2 / 2
// An argument is the path of a timeline to write: open it in https://ui.perfetto.dev.
#include <ebb/ebb.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>

namespace {

using namespace ebb::literals;

constexpr std::int64_t kSteps = 1500;
constexpr std::size_t kUnits = 48;
using State = std::array<double, kUnits>;
using Row = std::array<double, 3>;  // signal, 1, target
struct Tape {
  Row row;  // kept, so that reverse need not ask for it
  State before, after;
};
struct Weights {
  std::array<State, kUnits> w{};
  std::array<std::array<double, 2>, kUnits> u{};
};

class Net : public ebb::Step {
 public:
  Net(ebb::Sequence<const double> rows, ebb::Sequence<double> outputs)
      : rows_(std::move(rows)), outputs_(std::move(outputs)) {
    auto drawn = [n = 1.0]() mutable { return std::sin(n *= 1.01); };
    for (State& unit : weights_.w) std::ranges::generate(unit, [&] { return 0.2 * drawn(); });
    for (auto& unit : weights_.u) std::ranges::generate(unit, drawn);
  }

  std::int64_t steps() const override { return kSteps; }
  ebb::StepBytes bytes(std::int64_t) const override {
    return {.state = sizeof(State),
            .tape = sizeof(Tape),
            .adjoint = sizeof(State),
            .scratch = sizeof(State)};
  }
  void begin() override {
    loss_ = 0;
    gradient_ = {};
  }
  std::int64_t advance(const ebb::StepSpan& span, std::byte* state, std::byte* scratch) override {
    for (std::int64_t t = span.from; t < span.to; ++t) {
      forward(t, row(t), as<State>(state), as<State>(scratch), span.first);
      as<State>(state) = as<State>(scratch);
    }
    return span.to;
  }
  void record(const ebb::StepSpan& span, std::byte* state, const ebb::Tapes& tapes,
              std::byte*) override {
    for (std::int64_t t = span.from; t < span.to; ++t) {
      auto& tape = as<Tape>(tapes.at(t - span.from));
      tape.row = row(t);
      tape.before = as<State>(state);
      forward(t, tape.row, tape.before, tape.after, span.first);
      as<State>(state) = tape.after;
    }
  }
  void reverse(std::int64_t from, std::int64_t to, const ebb::Tapes& tapes, std::byte* adjoint,
               std::byte* scratch) override {
    auto& a = as<State>(adjoint);
    auto& slope = as<State>(scratch);  // the gradient with respect to W h + U x
    for (std::int64_t t = to - 1; t >= from; --t) {
      const auto& [input, before, after] = as<Tape>(tapes.at(t - from));
      a[0] += after[0] - input[2];  // this step's own loss
      for (std::size_t i = 0; i < kUnits; ++i) slope[i] = a[i] * (1 - after[i] * after[i]);
      a = {};
      for (std::size_t i = 0; i < kUnits; ++i) {
        for (std::size_t j = 0; j < kUnits; ++j) a[j] += weights_.w[i][j] * slope[i];
        for (std::size_t j = 0; j < kUnits; ++j) gradient_.w[i][j] += slope[i] * before[j];
        for (std::size_t j = 0; j < 2; ++j) gradient_.u[i][j] += slope[i] * input[j];
      }
    }
  }

  // For codecs, verify and gradient_check; a run needs none of these.
  std::vector<ebb::FieldShape> state_fields() const override {
    return {{"h", ebb::Element::f64, 0, sizeof(State)}};
  }
  std::vector<ebb::FieldShape> tape_fields() const override {
    return {{"row", ebb::Element::f64, offsetof(Tape, row), sizeof(Row)},
            {"before", ebb::Element::f64, offsetof(Tape, before), sizeof(State)},
            {"after", ebb::Element::f64, offsetof(Tape, after), sizeof(State)}};
  }
  std::vector<ebb::Field> parameters() override { return fields(weights_); }
  std::vector<ebb::Field> gradients() override { return fields(gradient_); }
  double loss() const override { return loss_; }
  ebb::Bytes callers_bytes() const override {
    return static_cast<ebb::Bytes>(2 * sizeof(Weights)) + outputs_.bytes();
  }

 private:
  template <class T>
  static T& as(std::byte* bytes) {
    return *reinterpret_cast<T*>(bytes);
  }
  static std::vector<ebb::Field> fields(Weights& weights) {
    return {{"W", ebb::Element::f64, std::as_writable_bytes(std::span(weights.w))},
            {"U", ebb::Element::f64, std::as_writable_bytes(std::span(weights.u))}};
  }
  Row row(std::int64_t t) const {
    const std::span<const double> given = rows_.at(t);
    return {given[0], given[1], given[2]};
  }
  // Outputs and losses are handed out once, when a step first runs.
  void forward(std::int64_t t, const Row& input, const State& h, State& next, bool first) {
    for (std::size_t i = 0; i < kUnits; ++i) {
      double sum = weights_.u[i][0] * input[0] + weights_.u[i][1] * input[1];
      for (std::size_t j = 0; j < kUnits; ++j) sum += weights_.w[i][j] * h[j];
      next[i] = std::tanh(sum);
    }
    if (!first) return;
    outputs_.at(t)[0] = next[0];
    loss_ += (next[0] - input[2]) * (next[0] - input[2]) / 2;
  }

  ebb::Sequence<const double> rows_;
  ebb::Sequence<double> outputs_;
  Weights weights_, gradient_;
  double loss_ = 0;
};

double signal(std::int64_t t) { return 0.5 * std::sin(0.07 * double(t)); }

int complain(const char* what) {
  std::fprintf(stderr, "own_step: %s\n", what);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  Row row{};
  std::vector<double> outputs(kSteps);
  Net net({row.size(),
           [&row](std::int64_t t) -> std::span<const double> {
             return row = {signal(t), 1, signal(t + 10)};
           }},
          {std::span(outputs), 1});
  const State start{}, no_loss{};  // all of the loss is inside the steps
  State end, gradient;

  ebb::RunOptions options;
  options.budget = 32_KiB;  // all tapes would take 1.2 MiB
  options.tiers = {ebb::memory_tier(256_KiB),
                   ebb::file_tier(std::filesystem::temp_directory_path(), 16_MiB)};
  options.trace_events = argc > 1 ? 100'000 : 0;
  ebb::Progress last;
  options.progress = [&last](const ebb::Progress& p) { last = p; };  // for a bar
  options.progress_seconds = 0;
  ebb::Run run(net, options);
  run.forward(start, end);
  run.backward(no_loss, gradient);
  std::printf("%sloss %.6f, last told of %lld forwards\n\n", run.report().full().c_str(),
              net.loss(), static_cast<long long>(last.forwards));
  if (argc > 1 && !(std::ofstream(argv[1]) << run.trace_json())) return complain("no timeline");

  // What was measured serves the runs below too.
  options.chain = run.chain();
  options.platform = run.platform();
  const auto initial = std::as_bytes(std::span(start));
  const ebb::Verification same = ebb::verify(net, options, initial);
  std::printf("%s", same.text().c_str());
  if (!same.equal()) return complain("the plan changes the gradient");
  const ebb::GradientCheck check = ebb::gradient_check(
      net, options, initial, std::as_bytes(std::span(no_loss)), {.elements = 3});
  std::printf("%s\n", check.text().c_str());
  if (check.largest_error() > 1e-5) return complain("the gradient is not the difference");

  // A run ends when its token says so: from another thread, a button, or as here beforehand.
  std::stop_source stop;
  options.stop = stop.get_token();
  stop.request_stop();
  try {
    ebb::Run(net, options).forward(start, end);
    return complain("it was not cancelled");
  } catch (const ebb::Error& error) {
    std::printf("%s\n", error.what());
    if (error.code() != ebb::ErrorCode::cancelled) return complain("another error");
  }
}
