// SPDX-License-Identifier: Apache-2.0
// Plans, reports and other documents as pages.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include "ebb/view/document.h"
#include "ebb/view/page.h"
#include "python/core/topics.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace ebb::python {

void bind_view(nb::module_& module) {
  module.def(
      "plan_page",
      [](const Plan& plan, const Chain& chain, const Platform& platform, const PlanOptions& options,
         std::optional<Bytes> least, double curve_seconds, std::int64_t most_actions,
         bool explorer) {
        const PlanQuestion question{chain, platform, options};
        return plan_page({.question = question,
                          .plan = plan,
                          .least = least,
                          .curve_seconds = curve_seconds,
                          .most_actions = most_actions,
                          .explorer = explorer});
      },
      "plan"_a, "chain"_a, "platform"_a, "options"_a, "least_budget"_a.none(), "curve_seconds"_a,
      "most_actions"_a, "explorer"_a, nb::call_guard<nb::gil_scoped_release>());
  module.def("document_page", &document_page, "text"_a, "name"_a);
  module.def("in_frame", &in_frame, "page"_a);
}

}  // namespace ebb::python
