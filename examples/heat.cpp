// SPDX-License-Identifier: Apache-2.0
// Heat on a rod, stepped explicitly, and the gradient of the heat at the end with respect to the
// heat at the start. The problem and both published norms are those of Argonne's Checkpointing.jl
// (examples/heat.jl, test/runtests.jl).
#include <ebb/ebb.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <span>
#include <vector>

namespace {

using namespace ebb::literals;
using In = std::span<const double>;
using Out = std::span<double>;

constexpr std::size_t kPoints = 100;
constexpr std::int64_t kSteps = 500;
constexpr double kLambda = 0.5;

// The ends stay as they are.
void forward(std::int64_t, In last, Out next) {
  next.front() = last.front();
  next.back() = last.back();
  for (std::size_t i = 1; i + 1 < kPoints; ++i) {
    next[i] = last[i] + kLambda * (last[i - 1] - 2 * last[i] + last[i + 1]);
  }
}

// The transpose: every inner point hands its gradient to itself and to both neighbours.
void backward(std::int64_t, In, In, Out adjoint) {
  double left = 0;
  for (std::size_t i = 0; i < kPoints; ++i) {
    const double here = i > 0 && i + 1 < kPoints ? adjoint[i] : 0;
    const double right = i + 2 < kPoints ? adjoint[i + 1] : 0;
    adjoint[i] += kLambda * (left - 2 * here + right);
    left = here;
  }
}

double norm(In values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

struct Result {
  std::vector<double> heat = std::vector<double>(kPoints);
  std::vector<double> gradient = std::vector<double>(kPoints);
  bool operator==(const Result&) const = default;
};

Result solve(const ebb::RunOptions& options) {
  ebb::FunctionStep<double> step(kSteps, kPoints, forward, backward);
  ebb::Run run(step, options);
  std::vector<double> start(kPoints);
  start[0] = 20;
  const std::vector<double> ones(kPoints, 1);  // the loss is the sum of all points
  Result result;
  run.forward(start, result.heat);
  run.backward(ones, result.gradient);
  std::printf("%s\n", run.report().brief().c_str());
  return result;
}

}  // namespace

int main() {
  // As published: Revolve with 100 states kept.
  const Result slots = solve({.strategy = "revolve", .slots = 100});
  // The same in 6 KiB and a file; ebb finds out how.
  const std::string folder = std::filesystem::temp_directory_path();
  const Result budget = solve({.budget = 6_KiB, .tiers = {ebb::file_tier(folder, 4_MiB)}});

  const double heat = norm(slots.heat);
  const double gradient = norm(In(slots.gradient).subspan(1, kPoints - 2));  // of inner points
  std::printf("norm of the heat      %.14f, published 66.21987468492061\n", heat);
  std::printf("norm of the gradient  %.15f, published 6.970279349365908\n", gradient);
  if (std::abs(heat - 66.21987468492061) > 1e-11 ||
      std::abs(gradient - 6.970279349365908) > 1e-11) {
    std::fprintf(stderr, "heat: the norms are not the published ones\n");
    return 1;
  }
  if (!(slots == budget)) {
    std::fprintf(stderr, "heat: the two runs differ\n");
    return 1;
  }
  std::printf("both runs gave the same bits\n");
}
