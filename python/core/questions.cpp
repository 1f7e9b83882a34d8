// SPDX-License-Identifier: Apache-2.0
// The planner's other questions, its table, and its answers as text.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <utility>
#include <vector>

#include "ebb/plan/strategies.h"
#include "ebb/plan/text.h"
#include "python/core/topics.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace ebb::python {
namespace {

std::vector<std::pair<Bytes, std::shared_ptr<const Plan>>> sweep_plans(const Chain& chain,
                                                                       const Platform& platform,
                                                                       const PlanOptions& options,
                                                                       int points) {
  std::vector<std::pair<Bytes, std::shared_ptr<const Plan>>> all;
  for (SweepPoint& point : sweep(chain, platform, options, points)) {
    all.emplace_back(point.budget, std::make_shared<const Plan>(std::move(point.plan)));
  }
  return all;
}

}  // namespace

void bind_questions(nb::module_& module) {
  nb::class_<StrategyRow>(module, "StrategyRow")
      .def_ro("name", &StrategyRow::name)
      .def_ro("algorithm", &StrategyRow::algorithm)
      .def_ro("summary", &StrategyRow::summary)
      .def_ro("paper", &StrategyRow::paper)
      .def_ro("optimal", &StrategyRow::optimal)
      .def_ro("keeps_tapes", &StrategyRow::keeps_tapes)
      .def_ro("needs_tier", &StrategyRow::needs_tier);
  module.def("strategies", [] {
    const auto rows = strategies();
    return std::vector<StrategyRow>(rows.begin(), rows.end());
  });
  module.def("largest_steps", &largest_steps, "step"_a, "call"_a, "platform"_a, "options"_a,
             nb::call_guard<nb::gil_scoped_release>());
  module.def("sweep", &sweep_plans, "chain"_a, "platform"_a, "options"_a, "points"_a,
             nb::call_guard<nb::gil_scoped_release>());
  module.def(
      "plan_json",
      [](const Plan& plan, const Chain& chain, const Platform& platform, const PlanOptions& options,
         double plan_seconds, std::optional<Bytes> least) {
        const PlanQuestion question{chain, platform, options};
        return to_json(plan, chain.steps(), plan_seconds, least, &question);
      },
      "plan"_a, "chain"_a, "platform"_a, "options"_a, "plan_seconds"_a, "least_budget"_a.none());
  module.def("is_uniform", &Chain::is_uniform, "chain"_a);
  module.def("call_seconds", &Chain::call, "chain"_a);
  module.def("typical", &Chain::typical, "chain"_a);
  module.def(
      "plain_seconds",
      [](const Chain& chain) {
        return chain.record_seconds(0, chain.steps()) + chain.backward_seconds(0, chain.steps());
      },
      "chain"_a);
}

}  // namespace ebb::python
