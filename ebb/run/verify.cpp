// SPDX-License-Identifier: Apache-2.0
#include "ebb/run/verify.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <sstream>

#include "ebb/core/error.h"
#include "ebb/plan/strategies.h"
#include "ebb/run/compare_runs.h"
#include "ebb/run/numbers.h"
#include "ebb/run/prefix_step.h"
#include "ebb/run/run.h"
#include "ebb/run/sizes.h"

namespace ebb {
namespace {

struct ComparedPart {
  std::string name;
  Element element = Element::byte;
  std::vector<std::byte> bytes;
};

// A state in parts by its fields; in one part of bytes where a Step names none.
void add_state(std::vector<ComparedPart>& parts, const std::string& name, const Step& step,
               std::span<const std::byte> state) {
  const std::vector<FieldShape> fields = step.state_fields();
  if (fields.empty()) {
    parts.push_back({name, Element::byte, {state.begin(), state.end()}});
  }
  for (const FieldShape& field : fields) {
    const auto bytes = part_of(field, state);
    if (bytes.empty()) continue;
    const std::string whole = fields.size() == 1 ? name : name + "." + field.name;
    parts.push_back({whole, field.element, {bytes.begin(), bytes.end()}});
  }
}

struct RunResults {
  std::string strategy;
  std::vector<ComparedPart> parts;
};

RunResults outcome_of(Step& step, const RunOptions& options, std::span<const std::byte> initial) {
  Run run(step, options);
  std::vector<std::byte> final(static_cast<std::size_t>(step.final_bytes()));
  std::vector<std::byte> adjoint = ones(step, final.size());
  std::vector<std::byte> initial_adjoint(initial.size());
  run.forward(initial, std::span(final));
  run.backward(std::span<const std::byte>(adjoint), std::span(initial_adjoint));
  RunResults outcome{run.plan().strategy, {}};
  add_state(outcome.parts, "final state", step, final);
  add_state(outcome.parts, "initial adjoint", step, initial_adjoint);
  for (const Field& field : step.gradients()) {
    outcome.parts.push_back(
        {"gradient of " + field.name, field.element, {field.bytes.begin(), field.bytes.end()}});
  }
  return outcome;
}

Difference compare(const ComparedPart& is, const ComparedPart& should) {
  Difference found{.name = is.name};
  const auto size = static_cast<std::size_t>(element_bytes(is.element));
  found.elements = static_cast<std::int64_t>(is.bytes.size() / size);
  double apart = 0, length = 0, own = 0, product = 0;
  for (std::size_t i = 0; i < is.bytes.size() / size; ++i) {
    if (std::memcmp(&is.bytes[i * size], &should.bytes[i * size], size) != 0) ++found.differing;
    if (is.element == Element::byte) continue;
    const double a = number_at(is.bytes, is.element, i);
    const double b = number_at(should.bytes, should.element, i);
    if (const double off = std::abs(a - b); off > found.largest || std::isnan(off)) {
      found.largest = off;
      found.largest_at = static_cast<std::int64_t>(i);
    }
    apart += (a - b) * (a - b);
    length += b * b;
    own += a * a;
    product += a * b;
  }
  // Comparisons with NaN are false: it must not look like no difference.
  if (!(apart == 0)) found.relative = std::sqrt(apart / std::max(length, 1e-300));
  if (!(own == 0) && !(length == 0)) found.cosine = product / std::sqrt(own * length);
  return found;
}

// As scarce for the first steps as the budget is for all, but enough for the strategy.
Bytes prefix_budget(Step& prefix, const RunOptions& options, std::int64_t all) {
  if (options.budget == kUnlimited || options.slots || prefix.steps() == 0) return options.budget;
  const Run measured(prefix, options);
  PlanOptions how;
  how.strategy = options.strategy;
  how.intervals = options.intervals;
  how.period = options.period;
  how.working = measured.plan().machine.working;
  const std::optional<Bytes> least = least_budget(measured.chain(), measured.platform(), how);
  const double share = static_cast<double>(prefix.steps()) / static_cast<double>(all);
  const auto scarce = static_cast<Bytes>(static_cast<double>(options.budget) * share);
  return std::min(options.budget, std::max(scarce, least.value_or(options.budget)));
}

}  // namespace

std::vector<std::byte> ones(const Step& step, std::size_t bytes) {
  std::vector<std::byte> state(bytes, std::byte{0});
  for (const FieldShape& field : step.state_fields()) {
    const auto part = part_of(field, std::span(state));
    const auto size = static_cast<std::size_t>(element_bytes(field.element));
    for (std::size_t i = 0; i < part.size() / size; ++i) set_number(part, field.element, i, 1);
  }
  return state;
}

Verification verify(Step& step, const RunOptions& options, std::span<const std::byte> initial,
                    std::int64_t steps) {
  if (step.steps() == Step::kUnknown) {
    fail(ErrorCode::invalid_argument,
         "verify: the step's length is unknown; verify a Step that knows it");
  }
  check_fields(step);
  if (steps < 0) {
    fail(ErrorCode::invalid_argument, "verify: ", steps, " steps; there must be 0 or more");
  }
  steps = std::min(steps, step.steps());
  RunOptions plain;
  plain.strategy = "store_all";
  if (options.chain) plain.chain = first_steps(*options.chain, steps);
  plain.profile = options.profile;
  return compare_runs(step, options, plain, initial, steps);
}

Verification compare_runs(Step& step, RunOptions asked, RunOptions plain,
                          std::span<const std::byte> initial, std::int64_t steps) {
  PrefixStep prefix(step, steps);
  asked.progress = {};
  asked.trace_events = 0;
  asked.plan.reset();
  if (asked.chain) asked.chain = first_steps(*asked.chain, steps);
  asked.measure_codec_error = plain.measure_codec_error = false;
  asked.budget = prefix_budget(prefix, asked, step.steps());

  Verification found;
  found.steps = steps;
  const RunResults is = outcome_of(prefix, asked, initial);
  const RunResults should = outcome_of(prefix, plain, initial);
  found.strategy = is.strategy;
  found.against = should.strategy;
  for (std::size_t i = 0; i < is.parts.size(); ++i) {
    found.parts.push_back(compare(is.parts[i], should.parts[i]));
  }
  step.begin();
  return found;
}

void check_fields(const Step& step) {
  if (step.steps() == 0) return;
  for (const FieldShape& field : step.state_fields()) {
    if (field.offset >= 0 && field.bytes >= 0 &&
        add_bytes(field.offset, field.bytes) <= step.bytes(0).state) {
      continue;
    }
    fail(ErrorCode::invalid_argument, "run: field '", field.name, "' is at ", field.offset,
         " and has ", field.bytes, " bytes; a state has ", step.bytes(0).state);
  }
}

bool Verification::equal() const {
  return std::ranges::all_of(parts, [](const Difference& part) { return part.differing == 0; });
}

double Verification::relative() const {
  double most = 0;
  for (const Difference& part : parts) most = larger(most, part.relative);
  return most;
}

std::string Verification::text() const {
  std::ostringstream text;
  text.precision(3);
  text << strategy << " against " << against << " over " << steps << " steps: ";
  if (equal()) {
    text << "the same bits\n";
    return text.str();
  }
  text << "they differ\n";
  for (const Difference& part : parts) {
    text << "  " << part.name << ": " << part.differing << " of " << part.elements << " differ";
    if (part.largest_at >= 0) {
      text << ", by at most " << part.largest << " (element " << part.largest_at << "), relative "
           << part.relative << ", cosine " << part.cosine;
    }
    text << '\n';
  }
  return text.str();
}

}  // namespace ebb
