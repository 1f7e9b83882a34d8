// SPDX-License-Identifier: Apache-2.0
#include "ebb/core/version.h"
#include "python/core/topics.h"

NB_MODULE(_core, module) {
  module.doc() = "The C++ library behind ebb. Use the package ebb; names here may change.";
  nanobind::set_leak_warnings(false);  // an exception at exit is no leak of ours
  module.attr("version") = ebb::version();
  ebb::python::bind_errors(module);
  ebb::python::bind_plan(module);
  ebb::python::bind_words(module);
  ebb::python::bind_report(module);
  ebb::python::bind_handle_run(module);
  ebb::python::bind_store(module);
  ebb::python::bind_actions(module);
  ebb::python::bind_questions(module);
  ebb::python::bind_step_run(module);
  ebb::python::bind_network(module);
  ebb::python::bind_compress(module);
  ebb::python::bind_codecs(module);
  ebb::python::bind_gated(module);
  ebb::python::bind_spiking(module);
  ebb::python::bind_view(module);
}
