// SPDX-License-Identifier: Apache-2.0
// The planner's question in words, as keywords say them.
#include "ebb/plan/words.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <utility>
#include <vector>

#include "ebb/plan/platform.h"
#include "python/core/topics.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace ebb::python {

void bind_words(nb::module_& module) {
  nb::class_<ChainWords>(module, "ChainWords")
      .def(nb::init<>())
      .def_rw("steps", &ChainWords::steps, nb::arg().none())
      .def_rw("forward", &ChainWords::forward, nb::arg().none())
      .def_rw("record", &ChainWords::record, nb::arg().none())
      .def_rw("backward", &ChainWords::backward, nb::arg().none())
      .def_rw("call", &ChainWords::call, nb::arg().none())
      .def_rw("state", &ChainWords::state, nb::arg().none())
      .def_rw("tape", &ChainWords::tape, nb::arg().none())
      .def_rw("adjoint", &ChainWords::adjoint, nb::arg().none())
      .def_rw("scratch", &ChainWords::scratch, nb::arg().none());
  nb::class_<OptionWords>(module, "OptionWords")
      .def(nb::init<>())
      .def_rw("strategy", &OptionWords::strategy, nb::arg().none())
      .def_rw("slots", &OptionWords::slots, nb::arg().none())
      .def_rw("budget", &OptionWords::budget, nb::arg().none())
      .def_rw("working", &OptionWords::working, nb::arg().none())
      .def_rw("intervals", &OptionWords::intervals, nb::arg().none())
      .def_rw("period", &OptionWords::period, nb::arg().none());
  nb::class_<PlanReader>(module, "PlanReader")
      .def(nb::init<>())
      .def("uniform_chain", &PlanReader::uniform_chain, "words"_a)
      .def("check_nothing_beside_chain", &PlanReader::check_nothing_beside_chain, "words"_a)
      .def("chain_file", &PlanReader::chain_file, "path"_a)
      .def("platform", &PlanReader::platform, "word"_a)
      .def(
          "tier",
          [](const PlanReader& reader, std::string_view word, const Chain& chain) {
            return reader.tier(word, chain);
          },
          "word"_a, "chain"_a)
      .def(
          "tier_of",
          [](const PlanReader& reader, std::string name,
             const std::vector<std::pair<std::string, std::string>>& values, const Chain& chain) {
            TierWord word{std::move(name), {}};
            for (const auto& [key, value] : values) word.parts.push_back({key, value});
            return reader.tier(word, chain);
          },
          "name"_a, "values"_a, "chain"_a)
      .def("options", &PlanReader::options, "words"_a, "chain"_a);
  module.def("planned_tier_keys", [] {
    const auto keys = planned_tier_keys();
    return std::vector<std::string>(keys.begin(), keys.end());
  });
  module.def("check_tier_name", &check_tier_name, "what"_a, "name"_a);
  module.def("state_of_all", &state_of_all, "what"_a, "chain"_a);
}

}  // namespace ebb::python
