// SPDX-License-Identifier: Apache-2.0
// Chains, platforms, actions and plans as JSON text, and the presets.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/plan/action.h"
#include "ebb/plan/chain.h"
#include "ebb/plan/plan.h"
#include "ebb/plan/platform.h"
#include "ebb/plan/strategies.h"

namespace ebb {

// {"steps":[{"forward":s,"record":s,"backward":s,"state":bytes,"tape":bytes,"adjoint":bytes,"scratch":bytes,"live":bytes},...]}
// or
// {"repeat":N,"step":{...}}, both with an optional "call":s. Bytes are numbers or text ("64KiB").
// Left out: forward 1, record = forward, backward = 2 forward, state 1, tape = state, adjoint =
// state, scratch 0, live = state. Unknown keys, wrong types and broken JSON throw Error(invalid_argument) that
// says where.
Chain chain_from_json(std::string_view text);
std::string to_json(const Chain& chain);

// {"name":"...","fast":bytes,"copy":bytes/s,"tiers":[{"name":"...","capacity":bytes,"write":bytes/s,
// "read":bytes/s,"latency":s,"write_latency":s,"read_latency":s,"duplex":true},...]}; "latency"
// stands for both directions. Left out: no limit, rates without one, latencies of 0, duplex.
Platform platform_from_json(std::string_view text);
std::string to_json(const Platform& platform);

// One line each, without the line's end: {"action":"advance","from":0,"to":4},
// {"action":"copy","item":"state","step":4,"from":"work","to":"disk"},
// {"action":"drop","item":"tape","step":3,"place":"fast"}.
std::string to_json(const Action& action, const Platform& platform);

// What make_plan was asked.
struct PlanQuestion {
  Chain chain;
  Platform platform;
  PlanOptions options;
};

// {"chain":{...},"platform":{...},"options":{"strategy":"auto","budget":bytes,...}}; options that were not given are left out. Reading
// throws Error(invalid_argument) as the readers above.
PlanQuestion question_from_json(std::string_view text);
std::string to_json(const PlanQuestion& question);

// The one object of docs/planning.md. steps: the chain's; least: the strategy's least budget; with a question, its JSON is the last key.
std::string to_json(const Plan& plan, std::int64_t steps, double plan_seconds,
                    std::optional<Bytes> least, const PlanQuestion* question = nullptr);

// The names of the data files in ebb/plan/presets, without their ending; preset(name) throws
// Error(invalid_argument) with the list for an unknown one.
std::vector<std::string> preset_names();
Platform preset(std::string_view name);

}  // namespace ebb
