// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/steps.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace ebb::test {
namespace {

template <class Number>
std::span<Number> numbers(std::byte* bytes, std::size_t count) {
  return {reinterpret_cast<Number*>(bytes), count};
}

template <class Number>
std::vector<std::byte> bytes_of(const std::vector<Number>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

double input(std::int64_t step) { return std::sin(0.7 * static_cast<double>(step) + 0.3); }

// x'[i] = tanh(w[i] x[i] + 0.5 x[i+1] + input): one row of mathematics for the small and the uneven
// step, whose states have different lengths.
class Ring : public TestStep {
 public:
  Ring() : weights_(64), gradient_(64) {
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      weights_[i] = 0.8 + 0.05 * static_cast<double>(i % 7);
    }
  }
  std::vector<Field> parameters() override { return {field("weights", weights_)}; }
  std::vector<Field> gradients() override { return {field("weights", gradient_)}; }
  double loss() const override { return loss_; }

 protected:
  static Field field(const char* name, std::vector<double>& values) {
    return {name, Element::f64, std::as_writable_bytes(std::span(values))};
  }
  void restart() {
    forget();
    std::ranges::fill(gradient_, 0.0);
    loss_ = 0;
  }
  void forward(std::int64_t step, std::span<const double> in, std::span<double> out, bool first) {
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::size_t a = i % in.size(), b = (i + 1) % in.size();
      out[i] = std::tanh(weights_[i] * in[a] + 0.5 * in[b] + 0.3 * input(step));
    }
    ++forwards_;
    if (!first) return;
    output(step, out[0]);
    loss_ += 0.1 * out[0] * out[0];
  }
  void backward(std::span<const double> in, std::span<const double> out,
                std::span<const double> after, std::span<double> before) {
    std::ranges::fill(before, 0.0);
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::size_t a = i % in.size(), b = (i + 1) % in.size();
      const double own = after[i] + (i == 0 ? 0.2 * out[0] : 0.0);
      const double slope = own * (1 - out[i] * out[i]);
      gradient_[i] += slope * in[a];
      before[a] += slope * weights_[i];
      before[b] += 0.5 * slope;
    }
  }

  std::vector<double> weights_, gradient_;
  double loss_ = 0;
};

class Small : public Ring {
 public:
  Small(std::int64_t steps, std::int64_t ends_at) : steps_(steps), ends_at_(ends_at) {}
  std::string name() const override { return steps_ == kUnknown ? "endless" : "small"; }
  std::vector<std::byte> initial() const override {
    return bytes_of(std::vector<double>{0.1, -0.2, 0.3, 0.4, -0.5});
  }
  std::int64_t steps() const override { return steps_; }
  StepBytes bytes(std::int64_t) const override {
    return {.state = 40, .tape = 80, .adjoint = 40, .scratch = 40};
  }
  void begin() override { restart(); }
  std::int64_t advance(const StepSpan& span, std::byte* state, std::byte* scratch) override {
    for (std::int64_t i = span.from; i < span.to; ++i) {
      forward(i, numbers<double>(state, 5), numbers<double>(scratch, 5), span.first);
      std::memcpy(state, scratch, 40);
      if (steps_ == kUnknown && i + 1 == ends_at_) return i + 1;
    }
    return span.to;
  }
  bool ended(std::int64_t step, const std::byte*) override { return step == ends_at_; }
  void record(const StepSpan& span, std::byte* state, const Tapes& tapes, std::byte*) override {
    for (std::int64_t i = span.from; i < span.to; ++i) {
      std::byte* const tape = tapes.at(i - span.from);
      std::memcpy(tape, state, 40);
      forward(i, numbers<double>(tape, 5), numbers<double>(tape + 40, 5), span.first);
      std::memcpy(state, tape + 40, 40);
    }
  }
  void reverse(std::int64_t from, std::int64_t to, const Tapes& tapes, std::byte* adjoint,
               std::byte* scratch) override {
    for (std::int64_t i = to - 1; i >= from; --i) {
      std::byte* const tape = tapes.at(i - from);
      backward(numbers<double>(tape, 5), numbers<double>(tape + 40, 5), numbers<double>(adjoint, 5),
               numbers<double>(scratch, 5));
      std::memcpy(adjoint, scratch, 40);
    }
  }
  std::vector<FieldShape> state_fields() const override { return {{"x", Element::f64, 0, 40}}; }
  std::vector<FieldShape> tape_fields() const override {
    return {{"before", Element::f64, 0, 40}, {"after", Element::f64, 40, 40}};
  }

 private:
  std::int64_t steps_, ends_at_;
};

class Uneven : public Ring {
 public:
  explicit Uneven(std::int64_t steps) : steps_(steps) {}
  std::string name() const override { return "uneven"; }
  std::vector<std::byte> initial() const override {
    std::vector<double> state(count(0));
    for (std::size_t i = 0; i < state.size(); ++i) state[i] = 0.1 * static_cast<double>(i) - 0.3;
    return bytes_of(state);
  }
  std::int64_t steps() const override { return steps_; }
  bool is_uniform() const override { return steps_ == 0; }
  StepBytes bytes(std::int64_t step) const override {
    const Bytes before = size(step), next = size(step + 1);
    const Bytes most = std::max(before, next);
    return {.state = before, .tape = before + next, .adjoint = most, .scratch = most};
  }
  Bytes final_bytes() const override { return size(steps_); }
  void begin() override { restart(); }
  std::int64_t advance(const StepSpan& span, std::byte* state, std::byte* scratch) override {
    for (std::int64_t i = span.from; i < span.to; ++i) {
      forward(i, numbers<double>(state, count(i)), numbers<double>(scratch, count(i + 1)),
              span.first);
      std::memcpy(state, scratch, 8 * count(i + 1));
    }
    return span.to;
  }
  void record(const StepSpan& span, std::byte* state, const Tapes& tapes, std::byte*) override {
    for (std::int64_t i = span.from; i < span.to; ++i) {
      std::byte* const tape = tapes.at(i - span.from);
      std::memcpy(tape, state, 8 * count(i));
      forward(i, numbers<double>(tape, count(i)), numbers<double>(tape + size(i), count(i + 1)),
              span.first);
      std::memcpy(state, tape + size(i), 8 * count(i + 1));
    }
  }
  void reverse(std::int64_t from, std::int64_t to, const Tapes& tapes, std::byte* adjoint,
               std::byte* scratch) override {
    for (std::int64_t i = to - 1; i >= from; --i) {
      std::byte* const tape = tapes.at(i - from);
      backward(numbers<double>(tape, count(i)), numbers<double>(tape + size(i), count(i + 1)),
               numbers<double>(adjoint, count(i + 1)), numbers<double>(scratch, count(i)));
      std::memcpy(adjoint, scratch, 8 * count(i));
    }
  }

 private:
  static std::size_t count(std::int64_t step) {
    return static_cast<std::size_t>(5 + (step * 7) % 11);
  }
  static Bytes size(std::int64_t step) { return static_cast<Bytes>(8 * count(step)); }
  std::int64_t steps_;
};

// h' = g h + (1 - g) sin(h[i+1] + input), g = 1 / (1 + h[i-1]^2 w). Tape: h, h', g.
class Gated : public TestStep {
 public:
  explicit Gated(std::int64_t steps) : steps_(steps) {}
  std::string name() const override { return "gated"; }
  std::vector<std::byte> initial() const override {
    std::vector<float> state(kCount);
    for (std::size_t i = 0; i < kCount; ++i) state[i] = std::cos(0.01F * static_cast<float>(i));
    return bytes_of(state);
  }
  std::int64_t steps() const override { return steps_; }
  StepBytes bytes(std::int64_t) const override {
    return {.state = kState, .tape = 3 * kState, .adjoint = kState, .scratch = 2 * kState};
  }
  Bytes state_in_tape(std::int64_t) const override { return kState; }
  void begin() override {
    forget();
    gradient_[0] = 0;
  }
  std::int64_t advance(const StepSpan& span, std::byte* state, std::byte* scratch) override {
    for (std::int64_t i = span.from; i < span.to; ++i) {
      forward(i, state, scratch, scratch + kState, span.first);
      std::memcpy(state, scratch, kState);
    }
    return span.to;
  }
  void record(const StepSpan& span, std::byte* state, const Tapes& tapes, std::byte*) override {
    for (std::int64_t i = span.from; i < span.to; ++i) {
      std::byte* const tape = tapes.at(i - span.from);
      std::memcpy(tape, state, kState);
      forward(i, tape, tape + kState, tape + 2 * kState, span.first);
      std::memcpy(state, tape + kState, kState);
    }
  }
  void reverse(std::int64_t from, std::int64_t to, const Tapes& tapes, std::byte* adjoint,
               std::byte* scratch) override {
    for (std::int64_t i = to - 1; i >= from; --i) {
      std::byte* const tape = tapes.at(i - from);
      const auto h = numbers<float>(tape, kCount), g = numbers<float>(tape + 2 * kState, kCount);
      const auto after = numbers<float>(adjoint, kCount), before = numbers<float>(scratch, kCount);
      const auto drive = static_cast<float>(input(i));
      std::ranges::fill(before, 0.0F);
      for (std::size_t k = 0; k < kCount; ++k) {
        const std::size_t left = (k + kCount - 1) % kCount, right = (k + 1) % kCount;
        const float s = std::sin(h[right] + drive);
        before[k] += after[k] * g[k];
        before[right] += after[k] * (1 - g[k]) * std::cos(h[right] + drive);
        const float gate = after[k] * (h[k] - s) * -g[k] * g[k];
        before[left] += gate * 2 * h[left] * weight_[0];
        gradient_[0] += gate * h[left] * h[left];
      }
      std::memcpy(adjoint, scratch, kState);
    }
  }
  std::vector<FieldShape> state_fields() const override { return {{"h", Element::f32, 0, kState}}; }
  std::vector<FieldShape> tape_fields() const override {
    return {{"before", Element::f32, 0, kState},
            {"after", Element::f32, kState, kState},
            {"gate", Element::f32, 2 * kState, kState}};
  }
  std::vector<Field> parameters() override {
    return {{"weight", Element::f32, std::as_writable_bytes(std::span(weight_))}};
  }
  std::vector<Field> gradients() override {
    return {{"weight", Element::f32, std::as_writable_bytes(std::span(gradient_))}};
  }

 private:
  static constexpr std::size_t kCount = 3000;
  static constexpr Bytes kState = 4 * kCount;

  void forward(std::int64_t step, std::byte* in, std::byte* out, std::byte* gates, bool first) {
    const auto h = numbers<float>(in, kCount), next = numbers<float>(out, kCount),
               g = numbers<float>(gates, kCount);
    const auto drive = static_cast<float>(input(step));
    for (std::size_t k = 0; k < kCount; ++k) {
      const float left = h[(k + kCount - 1) % kCount];
      g[k] = 1 / (1 + left * left * weight_[0]);
      next[k] = g[k] * h[k] + (1 - g[k]) * std::sin(h[(k + 1) % kCount] + drive);
    }
    ++forwards_;
    if (first) output(step, static_cast<double>(next[0]));
  }

  std::int64_t steps_;
  std::vector<float> weight_{0.7F}, gradient_{0.0F};
};

// v' = 0.9 v + w s[i-1] + input - s, s' = v' > 0.5. State: v, s. Tape: v, s, v', s'. The surrogate
// slope is 1 / (1 + |v' - 0.5|)^2.
class Spiking : public TestStep {
 public:
  explicit Spiking(std::int64_t steps) : steps_(steps) {}
  std::string name() const override { return "spiking"; }
  std::vector<std::byte> initial() const override {
    return bytes_of(std::vector<float>(2 * kCount, 0.0F));
  }
  std::int64_t steps() const override { return steps_; }
  StepBytes bytes(std::int64_t) const override {
    return {.state = kState, .tape = 2 * kState, .adjoint = kState, .scratch = kState};
  }
  void begin() override {
    forget();
    gradient_[0] = 0;
  }
  std::int64_t advance(const StepSpan& span, std::byte* state, std::byte* scratch) override {
    for (std::int64_t i = span.from; i < span.to; ++i) {
      forward(i, state, scratch, span.first);
      std::memcpy(state, scratch, kState);
    }
    return span.to;
  }
  void record(const StepSpan& span, std::byte* state, const Tapes& tapes, std::byte*) override {
    for (std::int64_t i = span.from; i < span.to; ++i) {
      std::byte* const tape = tapes.at(i - span.from);
      std::memcpy(tape, state, kState);
      forward(i, tape, tape + kState, span.first);
      std::memcpy(state, tape + kState, kState);
    }
  }
  void reverse(std::int64_t from, std::int64_t to, const Tapes& tapes, std::byte* adjoint,
               std::byte* scratch) override {
    for (std::int64_t i = to - 1; i >= from; --i) {
      std::byte* const tape = tapes.at(i - from);
      const auto s = numbers<float>(tape, 2 * kCount).subspan(kCount);
      const auto v = numbers<float>(tape + kState, kCount);
      const auto dv = numbers<float>(adjoint, 2 * kCount).first(kCount);
      const auto ds = numbers<float>(adjoint, 2 * kCount).subspan(kCount);
      const auto before = numbers<float>(scratch, 2 * kCount);
      std::ranges::fill(before, 0.0F);
      for (std::size_t k = 0; k < kCount; ++k) {
        const float slope = 1 / (1 + std::abs(v[k] - 0.5F));
        const float g = dv[k] + ds[k] * slope * slope;
        const std::size_t left = (k + kCount - 1) % kCount;
        before[k] += 0.9F * g;
        before[kCount + left] += weight_[0] * g;
        before[kCount + k] -= g;
        gradient_[0] += g * s[left];
      }
      std::memcpy(adjoint, scratch, kState);
    }
  }
  std::vector<FieldShape> state_fields() const override {
    return {{"v", Element::f32, 0, kState / 2}, {"s", Element::f32, kState / 2, kState / 2}};
  }
  std::vector<FieldShape> tape_fields() const override {
    return {{"v", Element::f32, 0, kState / 2},
            {"s", Element::f32, kState / 2, kState / 2},
            {"after", Element::f32, kState, kState}};
  }
  std::vector<Field> parameters() override {
    return {{"weight", Element::f32, std::as_writable_bytes(std::span(weight_))}};
  }
  std::vector<Field> gradients() override {
    return {{"weight", Element::f32, std::as_writable_bytes(std::span(gradient_))}};
  }

 private:
  static constexpr std::size_t kCount = 48;
  static constexpr Bytes kState = 8 * kCount;

  void forward(std::int64_t step, std::byte* in, std::byte* out, bool first) {
    const auto before = numbers<float>(in, 2 * kCount), after = numbers<float>(out, 2 * kCount);
    for (std::size_t k = 0; k < kCount; ++k) {
      const float spike = before[kCount + (k + kCount - 1) % kCount];
      const auto drive =
          static_cast<float>(0.3 + 0.2 * input(step * 48 + static_cast<std::int64_t>(k)));
      after[k] = 0.9F * before[k] + weight_[0] * spike + drive - before[kCount + k];
      after[kCount + k] = after[k] > 0.5F ? 1.0F : 0.0F;
    }
    ++forwards_;
    if (first) output(step, static_cast<double>(after[0]));
  }

  std::int64_t steps_;
  std::vector<float> weight_{0.4F}, gradient_{0.0F};
};

}  // namespace

std::unique_ptr<TestStep> small_step(std::int64_t steps) {
  return std::make_unique<Small>(steps, -1);
}
std::unique_ptr<TestStep> gated_step(std::int64_t steps) { return std::make_unique<Gated>(steps); }
std::unique_ptr<TestStep> uneven_step(std::int64_t steps) {
  return std::make_unique<Uneven>(steps);
}
std::unique_ptr<TestStep> spiking_step(std::int64_t steps) {
  return std::make_unique<Spiking>(steps);
}
std::unique_ptr<TestStep> endless_step(std::int64_t ends_at) {
  return std::make_unique<Small>(Step::kUnknown, ends_at);
}

}  // namespace ebb::test
