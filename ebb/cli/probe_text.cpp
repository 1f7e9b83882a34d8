// SPDX-License-Identifier: Apache-2.0
#include "ebb/cli/probe_text.h"

#include <cmath>
#include <ostream>

#include "ebb/core/json.h"
#include "ebb/core/layout.h"
#include "ebb/core/units.h"
#include "ebb/plan/text.h"
#include "ebb/store/tier_kinds.h"

namespace ebb {
namespace {

Json json_of(const RealTier& real, const Tier& found, Bytes state) {
  Json json = {{"name", found.name}, {"kind", real.kind->word}};
  json.update(real.kind->facts(real));
  json["capacity"] = found.capacity == kUnlimited ? Json() : Json(found.capacity);
  // null: more bytes take no more time.
  json["write"] = std::isfinite(found.write_rate) ? Json(found.write_rate) : Json();
  json["read"] = std::isfinite(found.read_rate) ? Json(found.read_rate) : Json();
  json["write_latency"] = found.write_latency;
  json["read_latency"] = found.read_latency;
  json["duplex"] = found.duplex;
  json["write_state"] = found.write_seconds(state);
  json["read_state"] = found.read_seconds(state);
  return json;
}

std::string in_forwards(double seconds, double forward) {
  if (!(forward > 0)) return format_seconds(seconds);
  return format_seconds(seconds) + " (" + format_number(seconds / forward) + " forwards)";
}

}  // namespace

void write_probe(const ProbeAnswer& answer, std::ostream& out) {
  const Chain& chain = answer.found.chain;
  const StepCost& step = chain.at(0);
  const std::vector<Tier>& tiers = answer.found.platform.tiers;
  out << "A step of a nonlinear heat equation: " << format_bytes(step.state) << " of floats, "
      << answer.sweeps << (answer.sweeps == 1 ? " sweep" : " sweeps") << "; " << chain.steps()
      << (chain.steps() == 1 ? " step.\n\n" : " steps.\n\n");
  Lines lines(out);
  lines.add("forward", format_seconds(step.forward));
  lines.add("record", format_seconds(step.record) + ", forward that leaves its tape");
  lines.add("backward", format_seconds(step.backward));
  lines.add("call", format_seconds(chain.call()) + " for each call, however many steps");
  lines.add("bytes", "state " + format_bytes(step.state) + ", tape " + format_bytes(step.tape) +
                         ", adjoint " + format_bytes(step.adjoint) + ", scratch " +
                         format_bytes(step.scratch));
  const double copy_rate = answer.found.platform.copy_rate;
  if (std::isfinite(copy_rate)) {
    lines.add("copy", format_bytes(static_cast<Bytes>(copy_rate)) + "/s within fast memory");
    lines.add("one state", "copied in " + in_forwards(static_cast<double>(step.state) / copy_rate,
                                                      step.forward));
  }
  for (std::size_t k = 0; k < tiers.size(); ++k) {
    const Tier& tier = tiers[k];
    out << "\nTier " << tier.name << ": " << answer.tiers[k].kind->how(answer.tiers[k]) << ".\n\n";
    const auto direction = [](double rate, double latency) {
      const std::string bytes = std::isfinite(rate) ? format_bytes(static_cast<Bytes>(rate)) + "/s"
                                                    : "any number at once";
      return bytes + ", latency " + format_seconds(latency);
    };
    lines.add("write", direction(tier.write_rate, tier.write_latency));
    lines.add("read", direction(tier.read_rate, tier.read_latency));
    lines.add("duplex",
              tier.duplex ? "yes, both directions at once" : "no, both directions share one lane");
    lines.add("capacity", tier.capacity == kUnlimited ? "no limit" : format_bytes(tier.capacity));
    lines.add("one state",
              "written in " + in_forwards(tier.write_seconds(step.state), step.forward));
    lines.add("one state", "read in " + in_forwards(tier.read_seconds(step.state), step.forward));
  }
}

std::string to_json(const ProbeAnswer& answer) {
  const Chain& chain = answer.found.chain;
  const StepCost& step = chain.at(0);
  Json json = {{"steps", chain.steps()},
               {"sweeps", answer.sweeps},
               {"step",
                {{"forward", step.forward},
                 {"record", step.record},
                 {"backward", step.backward},
                 {"call", chain.call()},
                 {"state", step.state},
                 {"tape", step.tape},
                 {"adjoint", step.adjoint},
                 {"scratch", step.scratch}}}};
  Json& tiers = json["tiers"] = Json::array();
  for (std::size_t k = 0; k < answer.tiers.size(); ++k) {
    tiers.push_back(json_of(answer.tiers[k], answer.found.platform.tiers[k], step.state));
  }
  json["chain"] = Json::parse(to_json(chain));
  json["platform"] = Json::parse(to_json(answer.found.platform));
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace ebb
