// SPDX-License-Identifier: Apache-2.0
#include "ebb/cli/device_probe_text.h"

#include <cmath>
#include <ostream>
#include <vector>

#include "ebb/core/json.h"
#include "ebb/core/layout.h"
#include "ebb/core/units.h"
#include "ebb/plan/text.h"

namespace ebb {
namespace {

std::string rate_words(double rate) { return format_bytes(static_cast<Bytes>(rate)) + "/s"; }

std::string capability_of(const CudaFacts& facts) {
  return std::to_string(facts.major) + "." + std::to_string(facts.minor);
}

}  // namespace

void write_device_probe(const DeviceProfile& found, std::ostream& out) {
  const CudaFacts& facts = found.facts;
  out << facts.name << ": compute capability " << capability_of(facts) << ", " << facts.processors
      << " multiprocessors.\n\n";
  Lines lines(out);
  lines.add("memory",
            format_bytes(facts.memory) + ", of which " + format_bytes(facts.unused) + " are free");
  lines.add("L2 cache", format_bytes(facts.cache));
  lines.add("launch", format_seconds(found.launch_seconds) + " for each kernel, one after another");
  lines.add("launch",
            format_seconds(found.answer_seconds) + " until the host knows that one is done");

  out << "\nCopies within the device, over and over: bytes copied a second, each of which is\n"
         "read and written. The set is all that is touched.\n\n";
  std::vector<std::vector<std::string>> rows = {{"set", "copied", "of the largest"}};
  for (const DeviceProfile::Copies& each : found.copies) {
    rows.push_back({format_bytes(each.set), rate_words(each.rate),
                    format_number(std::round(100 * each.rate / found.memory_rate) / 100) + "x"});
  }
  write_table(rows, out);
  out << '\n';
  lines.add("memory", rate_words(found.memory_rate) + " copied, beyond any cache");
  if (found.cache_rate > 0)
    lines.add("L2 cache", rate_words(found.cache_rate) + " copied, the best of sets that fit");

  out << "\nTier host: "
      << (found.pinned ? "pinned memory" : "common memory, as the system gave no pinned memory")
      << ".\n\n";
  const auto way = [](const DeviceProfile::Way& own) {
    return rate_words(own.rate) + ", latency " + format_seconds(own.latency);
  };
  lines.add("write", way(found.to_host));
  lines.add("read", way(found.to_device));
  lines.add("both", rate_words(found.both_rate) + ", both directions at once");
  lines.add("duplex",
            found.duplex() ? "yes, both directions at once" : "no, both directions share one lane");
}

std::string to_json(const DeviceProfile& found, const Platform& platform) {
  const CudaFacts& facts = found.facts;
  Json json = {{"device",
                {{"name", facts.name},
                 {"compute_capability", capability_of(facts)},
                 {"multiprocessors", facts.processors},
                 {"memory", facts.memory},
                 {"free", facts.unused},
                 {"l2", facts.cache}}},
               {"memory_rate", found.memory_rate},
               {"l2_rate", found.cache_rate},
               {"host",
                {{"pinned", found.pinned},
                 {"to_host", found.to_host.rate},
                 {"to_device", found.to_device.rate},
                 {"both", found.both_rate},
                 {"to_host_latency", found.to_host.latency},
                 {"to_device_latency", found.to_device.latency},
                 {"duplex", found.duplex()}}},
               {"launch", found.launch_seconds},
               {"answer", found.answer_seconds}};
  Json& copies = json["copies"] = Json::array();
  for (const DeviceProfile::Copies& each : found.copies) {
    copies.push_back({{"set", each.set}, {"rate", each.rate}});
  }
  json["platform"] = Json::parse(to_json(platform));
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace ebb
