// SPDX-License-Identifier: Apache-2.0
// ebb::Error as ebb.Error, and bytes as text.
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include "ebb/core/bytes.h"
#include "ebb/core/error.h"
#include "python/core/topics.h"

namespace nb = nanobind;

namespace ebb::python {
namespace {

const char* code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
      return "invalid_argument";
    case ErrorCode::infeasible_budget:
      return "infeasible_budget";
    case ErrorCode::out_of_budget:
      return "out_of_budget";
    case ErrorCode::unavailable:
      return "unavailable";
    case ErrorCode::out_of_memory:
      return "out_of_memory";
    case ErrorCode::io:
      return "io";
    case ErrorCode::device:
      return "device";
    case ErrorCode::cancelled:
      return "cancelled";
  }
  return "unknown";
}

// ebb.Error is a class of the package, so that Python code can raise it too.
void raise_error(const Error& error) {
  nb::object type = nb::module_::import_("ebb._base.errors").attr("Error");
  nb::object least = nb::none();
  if (error.least_budget()) least = nb::int_(*error.least_budget());
  nb::object raised = type(error.problem(), code_name(error.code()), least, error.remedy());
  PyErr_SetObject(type.ptr(), raised.ptr());
}

}  // namespace

void bind_errors(nb::module_& module) {
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const Error& error) {
      raise_error(error);
    }
  });
  module.def(
      "parse_bytes", [](const std::string& text) { return parse_bytes(text); }, nb::arg("text"));
  module.def("format_bytes", &format_bytes, nb::arg("bytes"));
  module.attr("UNLIMITED") = kUnlimited;
}

}  // namespace ebb::python
