// SPDX-License-Identifier: Apache-2.0
#include "tests/plan/random_case.h"

#include <cstdio>
#include <cstdlib>

#include "ebb/plan/text.h"

namespace ebb {

std::uint64_t test_seed() {
  static const std::uint64_t seed = [] {
    const char* const given = std::getenv("EBB_SEED");
    const std::uint64_t value =
        given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
    std::printf("EBB_SEED=%llu\n", static_cast<unsigned long long>(value));
    return value;
  }();
  return seed;
}

std::string RandomCase::text() const {
  return to_json(chain) + " " + to_json(platform) + (sync ? " sync" : "") + (slots ? " slots" : "");
}

double CaseMaker::seconds() {
  constexpr double choices[] = {0, 0.25, 0.5, 1, 1, 1, 2, 3, 10};
  return choices[between(0, 8)];
}

StepCost CaseMaker::step() {
  StepCost s;
  s.forward = seconds();
  s.record = one_in(2) ? s.forward : s.forward + seconds();
  s.backward = seconds();
  s.state = between(1, 4);
  s.tape = s.state * between(1, 4) + between(0, 1);
  s.adjoint = one_in(2) ? s.state : between(0, 3);
  s.scratch = one_in(2) ? 0 : between(0, 5);
  s.live = one_in(3) ? s.state + between(0, 5) : 0;
  return s;
}

Tier CaseMaker::tier(int index, Bytes state) {
  Tier t;
  t.name = std::string("tier") + static_cast<char>('a' + index);
  if (one_in(2)) t.capacity = state * between(0, 12) + between(0, 3);
  if (!one_in(4)) t.write_rate = static_cast<double>(between(1, 16)) / 4;
  if (!one_in(4)) t.read_rate = static_cast<double>(between(1, 16)) / 4;
  if (one_in(3)) t.write_latency = seconds();
  if (one_in(3)) t.read_latency = seconds();
  t.duplex = !one_in(3);
  return t;
}

RandomCase CaseMaker::next() {
  constexpr std::int64_t lengths[] = {0, 1, 2, 3, 5, 8, 13, 20};
  const std::int64_t steps = one_in(2) ? lengths[between(0, 7)] : between(1, 26);
  const double call = one_in(4) ? 0.25 : 0;
  RandomCase c{Chain::uniform(steps, step(), call), {}, one_in(4), false};
  if (one_in(3)) {
    std::vector<StepCost> each;
    each.reserve(static_cast<std::size_t>(steps));
    for (std::int64_t i = 0; i < steps; ++i) each.push_back(step());
    c.chain = Chain::of(each, call);
  }
  const std::int64_t tiers = between(0, 2);
  for (int k = 0; k < tiers; ++k) c.platform.tiers.push_back(tier(k, c.chain.typical().state));
  if (one_in(3)) c.platform.copy_rate = static_cast<double>(between(1, 64)) / 4;
  c.slots = c.chain.is_uniform() && one_in(4);
  return c;
}

}  // namespace ebb
