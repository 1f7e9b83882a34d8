// SPDX-License-Identifier: Apache-2.0
// The Lorenz system by the classical Runge-Kutta method, differentiated with respect to where it
// starts and to its three parameters, with four states kept. 126 steps are the most that Revolve
// reverses with 4 states and 5 runs of any step: C(9,4).
#include <ebb/ebb.h>

#include <array>
#include <cstdio>
#include <span>

namespace {

using In = std::span<const double>;
using Out = std::span<double>;
using Point = std::array<double, 3>;

constexpr double kStep = 0.01;
constexpr double kStageStep[] = {0, kStep / 2, kStep / 2, kStep};  // how far to each stage
constexpr double kWeight[] = {kStep / 6, kStep / 3, kStep / 3, kStep / 6};

class Lorenz {
 public:
  explicit Lorenz(std::int64_t steps)
      : step(
            steps, 3, [this](std::int64_t, In in, Out out) { forward(in, out); },
            [this](std::int64_t, In in, In, Out adjoint) { backward(in, adjoint); }) {
    step.on_begin([this] { gradient_ = {}; });
    step.on_parameters({{"sigma, rho, beta", ebb::Element::f64, bytes_of(parameters_)}},
                       {{"sigma, rho, beta", ebb::Element::f64, bytes_of(gradient_)}});
  }
  Lorenz(const Lorenz&) = delete;  // the step points here
  Lorenz& operator=(const Lorenz&) = delete;

  ebb::FunctionStep<double> step;
  const Point& gradient() const { return gradient_; }

 private:
  static std::span<std::byte> bytes_of(Point& p) { return std::as_writable_bytes(std::span(p)); }

  Point slope(const Point& p) const {
    const auto& [sigma, rho, beta] = parameters_;
    return {sigma * (p[1] - p[0]), p[0] * (rho - p[2]) - p[1], p[0] * p[1] - beta * p[2]};
  }

  // The points where the slope is taken; `out` gets the state after the step.
  std::array<Point, 4> stages(In in, Point& out) const {
    std::array<Point, 4> at;
    Point last{};
    out = {in[0], in[1], in[2]};
    for (std::size_t s = 0; s < 4; ++s) {
      for (std::size_t i = 0; i < 3; ++i) at[s][i] = in[i] + kStageStep[s] * last[i];
      last = slope(at[s]);
      for (std::size_t i = 0; i < 3; ++i) out[i] += kWeight[s] * last[i];
    }
    return at;
  }

  void forward(In in, Out out) const {
    Point end;
    stages(in, end);
    std::ranges::copy(end, out.begin());
  }

  void backward(In in, Out adjoint) {
    Point end, result{adjoint[0], adjoint[1], adjoint[2]}, of_stage{};
    const std::array<Point, 4> at = stages(in, end);
    for (std::size_t s = 4; s-- > 0;) {
      Point b;  // the gradient with respect to the slope at this stage
      for (std::size_t i = 0; i < 3; ++i) {
        b[i] = kWeight[s] * adjoint[i] + (s < 3 ? kStageStep[s + 1] * of_stage[i] : 0);
      }
      const auto& [x, y, z] = at[s];
      const auto& [sigma, rho, beta] = parameters_;
      of_stage = {-sigma * b[0] + (rho - z) * b[1] + y * b[2], sigma * b[0] - b[1] + x * b[2],
                  -x * b[1] - beta * b[2]};
      for (std::size_t i = 0; i < 3; ++i) result[i] += of_stage[i];
      gradient_[0] += b[0] * (y - x);
      gradient_[1] += b[1] * x;
      gradient_[2] -= b[2] * z;
    }
    std::ranges::copy(result, adjoint.begin());
  }

  Point parameters_{10, 27, 8.0 / 3}, gradient_{};
};

struct Gradients {
  Point start{}, parameters{};
  bool operator==(const Gradients&) const = default;
};

constexpr Point kStart{1, 1, 1}, kOnes{1, 1, 1};

Gradients solve(Lorenz& lorenz, const ebb::RunOptions& options, std::int64_t& forwards) {
  ebb::Run run(lorenz.step, options);
  Point end;
  Gradients found;
  run.forward(kStart, end);
  run.backward(kOnes, found.start);
  found.parameters = lorenz.gradient();
  forwards = run.report().measured.forwards();
  std::printf("%s\n", run.report().brief().c_str());
  return found;
}

}  // namespace

int main() {
  // n steps and what the closed form says: n + r n - C(4+r, r-1), r = 3, 5, 5.
  constexpr std::int64_t cases[][2] = {{20, 59}, {120, 594}, {126, 630}};
  for (const auto& [steps, expected] : cases) {
    Lorenz lorenz(steps);
    ebb::RunOptions scarce;
    scarce.strategy = "revolve";
    scarce.slots = 4;
    std::int64_t forwards = 0, plain = 0;
    const Gradients found = solve(lorenz, scarce, forwards);
    if (!(found == solve(lorenz, {.strategy = "store_all"}, plain))) {
      std::fprintf(stderr, "lorenz: revolve and store_all differ\n");
      return 1;
    }
    if (forwards != expected || plain != steps) {
      std::fprintf(stderr, "lorenz: %lld forwards\n", static_cast<long long>(forwards));
      return 1;
    }
    const ebb::GradientCheck check =
        ebb::gradient_check(lorenz.step, scarce, std::as_bytes(std::span(kStart)));
    std::printf("%s", check.text().c_str());
    if (check.largest_error() > 1e-7) {
      std::fprintf(stderr, "lorenz: the gradient is not the difference\n");
      return 1;
    }
  }
}
