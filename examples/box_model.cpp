// SPDX-License-Identifier: Apache-2.0
// Three boxes of ocean that exchange heat and salt, over 10 000 steps of ten days: how does the
// temperature at the end depend on the start? Equations, constants and both published numbers are
// those of Argonne's Checkpointing.jl (examples/box_model.jl, test/runtests.jl).
#include <ebb/ebb.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <span>

namespace {

using namespace ebb::literals;
using In = std::span<const double>;
using Out = std::span<double>;

constexpr std::int64_t kSteps = 10'000;
constexpr double kDay = 86'400, kYear = 365 * kDay,
                 kStep = 10 * kDay;  // centimetres, grams, seconds
constexpr double kRobert = 0.25;     // filter coefficient

// Boxes: 0 low latitudes, 1 high latitudes, 2 deep water.
constexpr std::array<double, 3> kLength{5000e5, 1000e5, 5000e5}, kDepth{1e5, 5e5, 4e5};
constexpr double kWidth = 4000e5;
constexpr double kShare = kDepth[0] / (kDepth[0] + kDepth[2]);
constexpr double volume(std::size_t box) { return kLength[box] * kWidth * kDepth[box]; }

// The current is driven by densities, these by temperature and salt.
constexpr std::array<double, 3> kDensityWeight{-kShare, 1, -(1 - kShare)};
constexpr double kCurrent = 16e12 / 0.0004, kPerDegree = -1668e-7, kPerSalt = 0.7811e-3;
// The air pulls on the temperature of the two upper boxes; rain and evaporation change their salt.
constexpr double kPull = 1 / (300 * kDay);
constexpr std::array<double, 3> kAir{22, 0, 0}, kPulled{kPull, kPull, 0};
constexpr double kFreshWater = 100 / kYear * 35 * kLength[0] * kWidth;
constexpr std::array<double, 3> kSaltGain{kFreshWater / volume(0), -kFreshWater / volume(1), 0};

// A state: now[6], old[6]; each of them three temperatures and three salinities.
constexpr std::size_t kOld = 6, kSalt = 3;

double current(In now) {
  double flow = 0;
  for (std::size_t box = 0; box < 3; ++box) {
    flow += kDensityWeight[box] * (kPerDegree * now[box] + kPerSalt * now[kSalt + box]);
  }
  return kCurrent * flow;
}

// Where a box's water comes from.
std::size_t upstream(std::size_t box, double flow) { return (box + (flow > 0 ? 2 : 1)) % 3; }

// A leapfrog step with Robert's filter: the new values become `now`, the filtered ones `old`.
void forward(std::int64_t, In before, Out after) {
  const double flow = current(before);
  for (std::size_t i = 0; i < 6; ++i) {
    const std::size_t box = i % kSalt, from = i - box + upstream(box, flow);
    const double gain = i < kSalt ? kPulled[box] * (kAir[box] - before[i]) : kSaltGain[box];
    const double rate = flow * (before[from] - before[i]) / volume(box) + gain;
    after[i] = before[kOld + i] + 2 * kStep * rate;
    after[kOld + i] = before[i] + kRobert * (after[i] - 2 * before[i] + before[kOld + i]);
  }
}

void backward(std::int64_t, In before, In, Out adjoint) {
  const double flow = current(before);
  std::array<double, 12> result{};
  double of_flow = 0;
  for (std::size_t i = 0; i < 6; ++i) {
    const double filtered = adjoint[kOld + i];
    const double fresh = adjoint[i] + kRobert * filtered;
    const std::size_t box = i % kSalt, from = i - box + upstream(box, flow);
    const double rate = 2 * kStep * fresh, exchange = rate * flow / volume(box);
    result[from] += exchange;
    result[i] += (1 - 2 * kRobert) * filtered - exchange - (i < kSalt ? kPulled[box] * rate : 0);
    result[kOld + i] = fresh + kRobert * filtered;
    of_flow += rate * (before[from] - before[i]) / volume(box);
  }
  for (std::size_t box = 0; box < 3; ++box) {
    result[box] += of_flow * kCurrent * kDensityWeight[box] * kPerDegree;
    result[kSalt + box] += of_flow * kCurrent * kDensityWeight[box] * kPerSalt;
  }
  std::ranges::copy(result, adjoint.begin());
}

}  // namespace

int main() {
  ebb::FunctionStep<double> step(kSteps, 12, forward, backward);
  ebb::Run run(step, {.budget = 64_KiB});  // all tapes would take 1.9 MiB

  const std::array<double, 12> start{20, 1, 1, 35.5, 34.5, 34.5, 20, 1, 1, 35.5, 34.5, 34.5};
  std::array<double, 12> end{}, adjoint{}, gradient{};
  run.forward(start, end);
  adjoint[kOld] = 1;  // the loss is the filtered temperature of box 0
  run.backward(adjoint, gradient);
  std::printf("%s\n", run.report().full().c_str());

  const double temperature = end[kOld], by_salt = gradient[kOld + kSalt + 1];
  std::printf("temperature of box 0       %.14f, published 21.41890316892692\n", temperature);
  std::printf("by the old salt of box 1   %.17f, published 0.00616139595759519\n", by_salt);
  if (std::abs(temperature - 21.41890316892692) > 1e-11 ||
      std::abs(by_salt - 0.00616139595759519) > 1e-11) {
    std::fprintf(stderr, "box_model: the numbers are not the published ones\n");
    return 1;
  }
}
