// SPDX-License-Identifier: Apache-2.0
#include "ebb/cli/device_probe_command.h"

#include <ostream>

#include "ebb/cli/device_option.h"
#include "ebb/cli/device_probe_text.h"
#include "ebb/cli/status_line.h"
#include "ebb/core/words.h"
#include "ebb/plan/text.h"
#include "ebb/run/device_profile.h"

namespace ebb {

void answer_device_probe(const ProbeWords& words, int device, std::ostream& out,
                         std::ostream& err) {
  refuse_options_of("cpu", {{"--state", words.state.has_value()},
                            {"--sweeps", words.sweeps.has_value()},
                            {"--steps", words.steps.has_value()},
                            {"--tier", !words.tiers.empty()},
                            {"--chain-out", words.chain_out.has_value()}});
  std::optional<Bytes> budget;
  if (words.budget) budget = read_size("--budget", *words.budget, 0, kUnlimited);
  use_cuda_device(device);
  StatusLine status(err);
  status.say("measuring the device ...");
  const DeviceProfile found = profile_device();
  Platform platform = platform_of(found);
  if (budget) platform.fast = *budget;
  if (words.platform_out)
    write_answer_file("--platform-out", *words.platform_out, to_json(platform));
  if (words.json) {
    out << to_json(found, platform) << '\n';
  } else {
    write_device_probe(found, out);
  }
}

}  // namespace ebb
