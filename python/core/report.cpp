// SPDX-License-Identifier: Apache-2.0
// What was predicted and what really happened, as values that are read only.
#include "ebb/run/report.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "ebb/view/document.h"
#include "ebb/view/page.h"
#include "python/core/topics.h"

namespace nb = nanobind;

namespace ebb::python {
namespace {

void bind_measured(nb::module_& module) {
  using Direction = TierTraffic::Direction;
  nb::class_<TierTraffic> traffic(module, "TierTraffic");
  nb::class_<Direction>(traffic, "Direction")
      .def_ro("states", &Direction::states)
      .def_ro("tapes", &Direction::tapes)
      .def_ro("bytes", &Direction::bytes)
      .def_ro("stored", &Direction::stored)
      .def_ro("busy_seconds", &Direction::busy_seconds);
  traffic.def_ro("written", &TierTraffic::written).def_ro("read", &TierTraffic::read);
  nb::class_<Measured>(module, "Measured")
      .def_ro("steps", &Measured::steps)
      .def_prop_ro("forwards", &Measured::forwards)
      .def_ro("advances", &Measured::advances)
      .def_ro("records", &Measured::records)
      .def_ro("actions", &Measured::actions)
      .def_ro("extra_forwards", &Measured::extra_forwards)
      .def_ro("seconds", &Measured::seconds)
      .def_ro("stall_seconds", &Measured::stall_seconds)
      .def_ro("peak", &Measured::peak)
      .def_ro("tiers", &Measured::tiers)
      .def_ro("states_kept", &Measured::states_kept)
      .def_ro("tapes_kept", &Measured::tapes_kept)
      .def_ro("first_states", &Measured::first_states)
      .def_ro("failed_transfers", &Measured::failed_transfers)
      .def_ro("failures", &Measured::failures);
}

void bind_verification(nb::module_& module) {
  nb::class_<Difference>(module, "Difference")
      .def_ro("name", &Difference::name)
      .def_ro("elements", &Difference::elements)
      .def_ro("differing", &Difference::differing)
      .def_ro("largest", &Difference::largest)
      .def_ro("largest_at", &Difference::largest_at)
      .def_ro("relative", &Difference::relative)
      .def_ro("cosine", &Difference::cosine);
  nb::class_<Verification>(module, "Verification")
      .def_ro("steps", &Verification::steps)
      .def_ro("strategy", &Verification::strategy)
      .def_ro("against", &Verification::against)
      .def_ro("parts", &Verification::parts)
      .def_prop_ro("equal", &Verification::equal)
      .def_prop_ro("relative", &Verification::relative)
      .def("__str__", &Verification::text);
}

std::string report_page(const Report& report) { return document_page(report.json(), ""); }

}  // namespace

void bind_report(nb::module_& module) {
  bind_measured(module);
  bind_verification(module);
  nb::class_<Report>(module, "Report")
      .def_ro("strategy", &Report::strategy)
      .def_ro("predicted", &Report::predicted)
      .def_ro("measured", &Report::measured)
      .def_ro("budget", &Report::budget)
      .def_ro("booked", &Report::booked)
      .def_ro("callers", &Report::callers)
      .def_ro("tiers", &Report::tiers)
      .def_ro("codec_error", &Report::codec_error)
      .def_ro("remarks", &Report::remarks)
      .def("brief", &Report::brief)
      .def("full", &Report::full)
      .def("json", &Report::json)
      .def(
          "to_html", [](const Report& report) { return report_page(report); },
          "The page that ebb view makes of it.")
      .def("_repr_html_", [](const Report& report) { return in_frame(report_page(report)); })
      .def("__str__", &Report::full);
}

}  // namespace ebb::python
