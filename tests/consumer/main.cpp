// SPDX-License-Identifier: Apache-2.0
// A user's program: plans a chain with the installed library and replays the plan.
#include <ebb/ebb.h>

#include <cstdio>

int main() {
  using namespace ebb::literals;
  const ebb::Chain chain = ebb::Chain::uniform(1000, {.forward = 1e-3,
                                                      .record = 1e-3,
                                                      .backward = 2e-3,
                                                      .state = 64_KiB,
                                                      .tape = 256_KiB,
                                                      .adjoint = 64_KiB});
  const ebb::Plan plan = ebb::make_plan(chain, {}, {.strategy = "auto", .budget = 8_MiB});
  const auto cursor = plan.cursor();
  const ebb::Prediction found = ebb::replay(chain, plan.machine, *cursor);

  std::printf("ebb %s: %s, %lld forwards, %.3f s, at least %.3f s\n", ebb::version(),
              plan.strategy.c_str(), static_cast<long long>(found.forwards), found.seconds,
              plan.bound.seconds);
  const bool right = found.peak.at(0) <= 8_MiB && found.forwards == plan.prediction.forwards &&
                     found.forwards >= 1000 && found.seconds >= plan.bound.seconds * (1 - 1e-9);
  return right ? 0 : 1;
}
