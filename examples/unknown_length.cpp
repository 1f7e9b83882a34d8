// SPDX-License-Identifier: Apache-2.0
// A sequence whose end is found on the way: van der Pol's oscillator with steps that shrink where
// it is fast, until a given time is over. How many steps that takes is not known beforehand.
#include <ebb/ebb.h>

#include <array>
#include <cstdio>
#include <span>

namespace {

using namespace ebb::literals;
using In = std::span<const double>;
using Out = std::span<double>;
using State = std::array<double, 3>;  // place, speed, time

constexpr double kMu = 3, kEnd = 20;

double acceleration(double x, double v) { return kMu * (1 - x * x) * v - x; }
double step_size(double v) { return 0.01 / (1 + v * v); }

void forward(std::int64_t, In in, Out out) {
  const double h = step_size(in[1]);
  out[0] = in[0] + h * in[1];
  out[1] = in[1] + h * acceleration(in[0], in[1]);
  out[2] = in[2] + h;
}

// The size of the step depends on the speed, and so does the gradient.
void backward(std::int64_t, In in, In, Out adjoint) {
  const double x = in[0], v = in[1], h = step_size(v);
  const double of_h = adjoint[0] * v + adjoint[1] * acceleration(x, v) + adjoint[2];
  const double of_a = adjoint[1] * h;
  adjoint[1] += adjoint[0] * h + of_a * kMu * (1 - x * x) - of_h * h * 2 * v / (1 + v * v);
  adjoint[0] += of_a * (-2 * kMu * x * v - 1);
}

bool ended(std::int64_t, In state) { return state[2] >= kEnd; }

struct Result {
  State end{}, gradient{};
  std::int64_t steps = 0;
  bool operator==(const Result&) const = default;
};

Result solve(ebb::Step& step, const ebb::RunOptions& options) {
  ebb::Run run(step, options);
  const State start{2, 0, 0}, place{1, 0, 0};
  Result result;
  run.forward(start, result.end);
  run.backward(place, result.gradient);
  result.steps = run.report().measured.steps;
  std::printf("%s\n", run.report().brief().c_str());
  return result;
}

}  // namespace

int main() {
  ebb::FunctionStep<double> open(3, forward, backward, ended);
  // States in the budget alone, or in a slower memory behind the computation. What may be needed is
  // taken first, so both need a limit.
  const Result online = solve(open, {.budget = 8_KiB});
  const Result async = solve(open, {.budget = 8_KiB, .tiers = {ebb::memory_tier(1_MiB)}});

  // The same with a length that is known by now, everything kept.
  ebb::FunctionStep<double> closed(online.steps, 3, forward, backward);
  const Result known = solve(closed, {.strategy = "store_all"});

  std::printf("t = %.3f after %lld steps: x = %.12f, dx/dx0 = %.6e\n", known.end[2],
              static_cast<long long>(known.steps), known.end[0], known.gradient[0]);
  if (known.steps < 1000 || !(online == known) || !(async == known)) {
    std::fprintf(stderr, "unknown_length: the runs differ\n");
    return 1;
  }
  std::printf("all three gave the same bits\n");
}
