// SPDX-License-Identifier: Apache-2.0
// Chains, platforms and plans.
#include "ebb/plan/plan.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "ebb/plan/strategies.h"
#include "ebb/plan/text.h"
#include "ebb/run/plan_cache.h"
#include "python/core/topics.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace ebb::python {
namespace {

void bind_chain(nb::module_& module) {
  nb::class_<StepCost>(module, "StepCost")
      .def(
          "__init__",
          [](StepCost* cost, double forward, std::optional<double> record,
             std::optional<double> backward, Bytes state, std::optional<Bytes> tape,
             std::optional<Bytes> adjoint, Bytes scratch, Bytes live) {
            new (cost) StepCost{.forward = forward,
                                .record = record.value_or(forward),
                                .backward = backward.value_or(2 * forward),
                                .state = state,
                                .tape = tape.value_or(state),
                                .adjoint = adjoint.value_or(state),
                                .scratch = scratch,
                                .live = live};
          },
          nb::kw_only(), "forward"_a = 1.0, "record"_a = nb::none(), "backward"_a = nb::none(),
          "state"_a = 1, "tape"_a = nb::none(), "adjoint"_a = nb::none(), "scratch"_a = 0,
          "live"_a = 0)
      .def_ro("forward", &StepCost::forward)
      .def_ro("record", &StepCost::record)
      .def_ro("backward", &StepCost::backward)
      .def_ro("state", &StepCost::state)
      .def_ro("tape", &StepCost::tape)
      .def_ro("adjoint", &StepCost::adjoint)
      .def_ro("scratch", &StepCost::scratch)
      .def_ro("live", &StepCost::live);
  nb::class_<Chain>(module, "Chain")
      .def_static("uniform", &Chain::uniform, "steps"_a, "step"_a, "call"_a = 0.0)
      .def_static("of", &Chain::of, "steps"_a, "call"_a = 0.0)
      .def_static("from_json", &chain_from_json, "text"_a)
      .def("to_json", [](const Chain& chain) { return to_json(chain); })
      .def("__len__", &Chain::steps)
      .def("__getitem__", [](const Chain& chain, std::int64_t step) {
        if (step < 0 || step >= chain.steps()) throw nb::index_error("no such step");
        return chain.at(step);
      });
}

void bind_platform(nb::module_& module) {
  nb::class_<Tier>(module, "TierSpeed")
      .def(
          "__init__",
          [](Tier* tier, std::string name, Bytes capacity, double write_rate, double read_rate,
             double write_latency, double read_latency, bool duplex) {
            new (tier) Tier{.name = std::move(name),
                            .capacity = capacity,
                            .write_rate = write_rate,
                            .read_rate = read_rate,
                            .write_latency = write_latency,
                            .read_latency = read_latency,
                            .duplex = duplex};
          },
          "name"_a, nb::kw_only(), "capacity"_a = kUnlimited,
          "write_rate"_a = std::numeric_limits<double>::infinity(),
          "read_rate"_a = std::numeric_limits<double>::infinity(), "write_latency"_a = 0.0,
          "read_latency"_a = 0.0, "duplex"_a = true)
      .def_ro("name", &Tier::name)
      .def_ro("capacity", &Tier::capacity)
      .def_ro("write_rate", &Tier::write_rate)
      .def_ro("read_rate", &Tier::read_rate)
      .def_ro("write_latency", &Tier::write_latency)
      .def_ro("read_latency", &Tier::read_latency)
      .def_ro("duplex", &Tier::duplex);
  nb::class_<Platform>(module, "Platform")
      .def(
          "__init__",
          [](Platform* platform, Bytes fast, std::vector<Tier> tiers, double copy_rate,
             std::string name) {
            new (platform) Platform{.name = std::move(name),
                                    .fast = fast,
                                    .tiers = std::move(tiers),
                                    .copy_rate = copy_rate};
            check_platform(*platform);
          },
          nb::kw_only(), "fast"_a = kUnlimited, "tiers"_a = std::vector<Tier>{},
          "copy_rate"_a = std::numeric_limits<double>::infinity(), "name"_a = "")
      .def_static("from_json", &platform_from_json, "text"_a)
      .def_static("preset", &preset, "name"_a)
      .def("to_json", [](const Platform& platform) { return to_json(platform); })
      .def_ro("name", &Platform::name)
      .def_ro("fast", &Platform::fast)
      .def_ro("tiers", &Platform::tiers)
      .def_ro("copy_rate", &Platform::copy_rate);
}

}  // namespace

void bind_plan(nb::module_& module) {
  bind_chain(module);
  bind_platform(module);
  nb::class_<PlanOptions>(module, "PlanOptions")
      .def(nb::init<>())
      .def_rw("strategy", &PlanOptions::strategy)
      .def_rw("budget", &PlanOptions::budget, nb::arg().none())
      .def_rw("slots", &PlanOptions::slots, nb::arg().none())
      .def_rw("working", &PlanOptions::working, nb::arg().none())
      .def_rw("intervals", &PlanOptions::intervals)
      .def_rw("period", &PlanOptions::period, nb::arg().none())
      .def_rw("sync", &PlanOptions::sync)
      .def_rw("tapes_stay", &PlanOptions::tapes_stay)
      .def_rw("length_unknown", &PlanOptions::length_unknown);
  nb::class_<Prediction>(module, "Prediction")
      .def_ro("forwards", &Prediction::forwards)
      .def_ro("advances", &Prediction::advances)
      .def_ro("records", &Prediction::records)
      .def_ro("actions", &Prediction::actions)
      .def_ro("seconds", &Prediction::seconds)
      .def_ro("stall_seconds", &Prediction::stall_seconds)
      .def_ro("peak", &Prediction::peak)
      .def_prop_ro("moved", [](const Prediction& prediction) {
        std::vector<std::pair<Bytes, Bytes>> moved;
        for (const auto& tier : prediction.moved) moved.emplace_back(tier.written, tier.read);
        return moved;
      });
  nb::class_<Plan>(module, "Plan")
      .def_ro("strategy", &Plan::strategy)
      .def_ro("parameters", &Plan::parameters)
      .def_ro("optimal", &Plan::optimal)
      .def_ro("prediction", &Plan::prediction)
      .def_prop_ro("bound_seconds", [](const Plan& plan) { return plan.bound.seconds; })
      .def_prop_ro("bound_relaxation", [](const Plan& plan) { return plan.bound.relaxation; })
      .def_prop_ro("gap", &Plan::gap)
      .def_prop_ro("platform", [](const Plan& plan) { return plan.machine.platform; })
      .def_ro("length_unknown", &Plan::length_unknown);
  // Plans made again for the same chain, platform and options are made once.
  module.def("make_plan", &cached_plan, "chain"_a, "platform"_a, "options"_a,
             nb::call_guard<nb::gil_scoped_release>());
  module.def("least_budget", &least_budget, "chain"_a, "platform"_a, "options"_a,
             nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace ebb::python
