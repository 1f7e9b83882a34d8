// SPDX-License-Identifier: Apache-2.0
#include "ebb/cli/probe_command.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "ebb/cli/device_option.h"
#include "ebb/cli/device_probe_command.h"
#include "ebb/cli/heading.h"
#include "ebb/cli/probe_text.h"
#include "ebb/cli/probe_words.h"
#include "ebb/cli/status_line.h"
#include "ebb/cli/tier_option.h"
#include "ebb/core/budget_words.h"
#include "ebb/core/error.h"
#include "ebb/core/words.h"
#include "ebb/experiments/stencil_step.h"
#include "ebb/plan/text.h"
#include "ebb/plan/words.h"
#include "ebb/run/profile.h"

namespace ebb {
namespace {

constexpr const char* kProbeFooter = R"(
What is measured: a step of a nonlinear heat equation on a ring of floats, its
adjoint, copies of its state within fast memory, and each tier with transfers of
that state's size. Plans are made from the results:
  ebb probe --chain-out chain.json --platform-out machine.json
  ebb plan --chain chain.json --platform machine.json --budget 64MiB

Name a tier by its kind; its speeds are measured. A capacity that you leave out
is the free space there.
)";

constexpr const char* kProbeFooterEnd = R"(
On a GPU it measures copies within its memory and within its L2 cache, copies
to and from pinned host memory, each way and both at once, and the time of a
call. There is no step, so only --budget, --json and --platform-out apply. A
budget that you leave out is the free memory.

Exit codes: 0 done, 2 bad usage or no such device, 3 does not fit, 4 a file, a
tier or the device fails.

Examples
  ebb probe
  ebb probe --state 16MiB --sweeps 32 --tier nvme:file=/scratch,capacity=64GiB
  ebb probe --device cuda --platform-out gpu.json
  ebb probe --tier direct:file=/tmp --tier cached:file=/tmp,direct=no --json
)";

void answer(const ProbeWords& words, std::ostream& out, std::ostream& err) {
  if (const std::optional<int> device = read_device(words.device))
    return answer_device_probe(words, *device, out, err);
  const std::int64_t steps =
      read_count("--steps", words.steps.value_or("1000"), 1, StencilStep::kMostSteps);
  const std::int64_t cells = StencilStep::cells_in(read_size(
      "--state", words.state.value_or("1MiB"), StencilStep::kLeastState, StencilStep::kMostState));
  const std::int64_t sweeps =
      read_count("--sweeps", words.sweeps.value_or("8"), 1, StencilStep::kMostSweeps);
  const std::string budget = words.budget.value_or("unlimited");
  read_budget("--budget", budget, 0);  // refused before anything is measured
  std::vector<std::string> tier_words = words.tiers;
  if (tier_words.empty()) tier_words = {"ram:memory", temporary_tier()};
  const std::vector<RealTier> tiers = parse_real_tiers(tier_words);

  StatusLine status(err);
  status.say("measuring the step and " + std::to_string(tiers.size()) + " tiers ...");
  StencilStep step(steps, cells, sweeps);
  const std::vector<float> initial = step.initial();
  ProfileOptions options;
  options.initial = std::as_bytes(std::span(initial));
  const Bytes room = is_share(budget) ? kUnlimited : read_budget("--budget", budget, 0);
  Profile found = profile(step, room, slow_tiers(tiers), options);
  found.platform.fast = read_budget("--budget", budget, everything_bytes(found.chain, {}));
  found.platform.name = "probed";
  const ProbeAnswer answer{sweeps, found, tiers};
  if (words.chain_out) write_answer_file("--chain-out", *words.chain_out, to_json(found.chain));
  if (words.platform_out)
    write_answer_file("--platform-out", *words.platform_out, to_json(found.platform));
  if (words.json) {
    out << to_json(answer) << '\n';
  } else {
    write_probe(answer, out);
  }
}

}  // namespace

void write_answer_file(const char* option, const std::string& path, const std::string& text) {
  errno = 0;
  std::ofstream file(path, std::ios::binary);
  file << text << '\n';
  file.close();
  if (file) return;
  const char* const why = errno != 0 ? std::strerror(errno) : "unknown failure";
  fail(ErrorCode::io, option, ": the file '", shown(path), "' cannot be written: ", why);
}

Command declare_probe(CLI::App& app) {
  const auto words = std::make_shared<ProbeWords>();
  Heading device(app, "The device");
  declare_device(device, words->device);
  Heading step(app, "The step");
  step.option("--state", words->state, "BYTES", "Size of a state; default 1MiB");
  step.option("--sweeps", words->sweeps, "K",
              "Sweeps over the state in each step: compute per\n"
              "byte; default 8");
  step.option("--steps", words->steps, "N", "Number of steps of the chain; default 1000");
  Heading memory(app, "The memory");
  memory.option("--budget", words->budget, "BYTES",
                "Fast memory that --platform-out names, or a share\n"
                "(5%) of what keeping everything takes; default no\n"
                "limit");
  memory.options("--tier", words->tiers, "NAME:KIND,...",
                 "A tier to measure, see below; repeat for more.\n"
                 "Default ram:memory and disk:file= with the\n"
                 "directory for temporary files");
  Heading output(app, "The answer");
  output.flag("--json", words->json, "Machine-readable: one object");
  output.option("--chain-out", words->chain_out, "FILE.json",
                "Writes the step there, for ebb plan --chain");
  output.option("--platform-out", words->platform_out, "FILE.json",
                "Writes copies and tiers there, for ebb plan\n--platform");
  set_footer(app, kProbeFooter + real_tier_lines() + kProbeFooterEnd);
  return [words](std::ostream& out, std::ostream& err) { answer(*words, out, err); };
}

}  // namespace ebb
