// SPDX-License-Identifier: Apache-2.0
#include "ebb/run/speeds.h"

#include <algorithm>
#include <cmath>
#include <sstream>

namespace ebb {
namespace {

// Below this share of a run's time a tier's speed makes no difference.
constexpr double kTierMatters = 0.02;
constexpr double kLeastItems = 4;

struct Speed {
  double& rate;
  double& latency;
};

// Changes the speed to the measured one and returns what to say, or nothing.
std::string compare(const TierTraffic::Direction& traffic, double run_seconds, double factor,
                    Speed speed) {
  const auto items = static_cast<double>(traffic.states + traffic.tapes);
  const auto bytes = static_cast<double>(traffic.bytes);
  const double assumed = speed.latency * items + bytes / speed.rate;
  if (items < kLeastItems || std::max(assumed, traffic.busy_seconds) < kTierMatters * run_seconds) {
    return {};
  }
  const double ratio = traffic.busy_seconds / std::max(assumed, 1e-12);
  if (ratio <= factor && ratio * factor >= 1) return {};
  speed.rate /= ratio;
  speed.latency *= ratio;
  if (!std::isfinite(speed.rate)) speed.rate = bytes / traffic.busy_seconds;
  std::ostringstream text;
  text.precision(3);
  text << " took " << traffic.busy_seconds << " s where the plan assumed " << assumed << " s";
  return text.str();
}

}  // namespace

SpeedRemarks compare_speeds(const Platform& assumed, const Measured& measured, double factor) {
  SpeedRemarks remarks{{}, assumed};
  for (std::size_t k = 0; k < assumed.tiers.size(); ++k) {
    Tier& tier = remarks.found.tiers[k];
    const TierTraffic& traffic = measured.tiers[k];
    const auto note = [&](const char* direction, const std::string& text) {
      if (!text.empty()) remarks.lines.push_back(tier.name + direction + text);
    };
    note(" writes",
         compare(traffic.written, measured.seconds, factor, {tier.write_rate, tier.write_latency}));
    note(" reads",
         compare(traffic.read, measured.seconds, factor, {tier.read_rate, tier.read_latency}));
  }
  return remarks;
}

}  // namespace ebb
