// SPDX-License-Identifier: Apache-2.0
// The topics of the Python module, a file each.
#pragma once

#include <nanobind/nanobind.h>

namespace ebb::python {

void bind_errors(nanobind::module_& module);
void bind_plan(nanobind::module_& module);
void bind_words(nanobind::module_& module);
void bind_report(nanobind::module_& module);
void bind_handle_run(nanobind::module_& module);
void bind_store(nanobind::module_& module);
void bind_actions(nanobind::module_& module);
void bind_questions(nanobind::module_& module);
void bind_step_run(nanobind::module_& module);
void bind_network(nanobind::module_& module);
void bind_compress(nanobind::module_& module);
void bind_codecs(nanobind::module_& module);
void bind_gated(nanobind::module_& module);
void bind_spiking(nanobind::module_& module);
void bind_view(nanobind::module_& module);

}  // namespace ebb::python
