// SPDX-License-Identifier: Apache-2.0
// Runs over Python objects: the executor calls a Python Step.
#include "ebb/run/handle_run.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/core/topics.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace ebb::python {
namespace {

// Places for Python: -1 work, 0 fast, 1 and more the tiers in order.
int place_number(Place place) { return place.id - 1; }

// Calls the methods of any Python object; they are looked up once.
class PythonHandleStep : public HandleStep {
 public:
  explicit PythonHandleStep(const nb::object& step)
      : advance_(step.attr("advance")),
        record_(step.attr("record")),
        reverse_(step.attr("reverse")),
        copy_(step.attr("copy")),
        drop_(step.attr("drop")),
        ended_(nb::getattr(step, "ended", nb::none())) {}

  std::int64_t advance(const StepSpan& span) override {
    return nb::cast<std::int64_t>(advance_(span.from, span.to, span.first));
  }
  void record(const StepSpan& span) override { record_(span.from, span.to, span.first); }
  void reverse(std::int64_t from, std::int64_t to) override { reverse_(from, to); }
  void copy(const Copy& copy) override {
    copy_(copy.item == Item::tape, copy.step, place_number(copy.from), place_number(copy.to));
  }
  void drop(const Drop& drop) override {
    drop_(drop.item == Item::tape, drop.step, place_number(drop.place));
  }
  bool ended(std::int64_t step) override {
    return !ended_.is_none() && nb::cast<bool>(ended_(step));
  }

 private:
  nb::object advance_, record_, reverse_, copy_, drop_, ended_;
};

class PythonHandleRun {
 public:
  PythonHandleRun(const nb::object& step, const Chain& chain, std::shared_ptr<const Plan> plan,
                  const Ledger& ledger)
      : step_(step), run_(step_, chain, std::move(plan), ledger) {}
  HandleRun& run() { return run_; }

 private:
  PythonHandleStep step_;
  HandleRun run_;
};

}  // namespace

void bind_handle_run(nb::module_& module) {
  nb::class_<Ledger>(module, "Ledger")
      .def(nb::init<Bytes>(), "limit"_a = kUnlimited)
      .def_prop_ro("limit", &Ledger::limit)
      .def_prop_ro("live", &Ledger::live)
      .def_prop_ro("peak", &Ledger::peak);
  nb::class_<PythonHandleRun>(module, "HandleRun")
      .def(nb::init<const nb::object&, const Chain&, std::shared_ptr<const Plan>, const Ledger&>(),
           "step"_a, "chain"_a, "plan"_a, "ledger"_a)
      .def("forward", [](PythonHandleRun& run) { run.run().forward(); })
      .def("backward", [](PythonHandleRun& run) { run.run().backward(); })
      .def("abandon", [](PythonHandleRun& run) { run.run().abandon(); })
      .def("report", [](PythonHandleRun& run) { return run.run().report(); });
}

}  // namespace ebb::python
