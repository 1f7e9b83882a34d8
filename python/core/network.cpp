// SPDX-License-Identifier: Apache-2.0
// Native layers over arrays given by address, so that NumPy's and torch's memory serve alike.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "ebb/core/error.h"
#include "python/core/network_run.h"
#include "python/core/topics.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace ebb::python {
namespace {

using Array = std::tuple<std::uintptr_t, std::int64_t, std::int64_t>;
using Addresses = std::vector<std::uintptr_t>;

Strided strided(const Array& array) {
  return {std::get<0>(array), std::get<1>(array), std::get<2>(array)};
}

// Ctrl-C ends a run.
void check_signals() {
  const nb::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

std::unique_ptr<NetworkRun> network_run(const std::string& dtype, std::vector<LayerOptions> layers,
                                        std::int64_t time_steps, std::int64_t batch, Bytes budget,
                                        std::string strategy, std::vector<SlowTier> tiers,
                                        const std::optional<Ledger>& ledger, std::int64_t chunk,
                                        int threads, bool input_gradient,
                                        std::vector<std::int64_t> batch_sizes, bool reverse) {
  NetworkRunOptions options;
  options.network.layers = std::move(layers);
  options.network.time_steps = time_steps;
  options.network.batch = batch;
  options.network.chunk = chunk;
  options.network.threads = threads;
  options.network.input_gradient = input_gradient;
  options.budget = budget;
  options.strategy = std::move(strategy);
  options.tiers = std::move(tiers);
  options.ledger = ledger;
  options.batch_sizes = std::move(batch_sizes);
  options.reverse = reverse;
  options.check = check_signals;
  if (dtype == "float32") return make_network_run<float>(options);
  if (dtype == "float64") return make_network_run<double>(options);
  fail(ErrorCode::invalid_argument, "network_run: dtype is '", dtype,
       "'; it must be 'float32' or 'float64'");
}

void bind_layer(nb::module_& module) {
  nb::class_<LayerOptions>(module, "LayerOptions")
      .def(nb::init<>())
      .def_rw("cell", &LayerOptions::cell)
      .def_rw("input", &LayerOptions::input)
      .def_rw("hidden", &LayerOptions::hidden)
      .def_rw("bias", &LayerOptions::bias)
      .def_rw("recurrent", &LayerOptions::recurrent)
      .def_rw("hard_reset", &LayerOptions::hard_reset)
      .def_rw("attached_reset", &LayerOptions::attached_reset)
      .def_rw("normalised", &LayerOptions::normalised)
      .def_rw("surrogate", &LayerOptions::surrogate)
      .def_rw("sharpness", &LayerOptions::sharpness, nb::arg().none())
      .def_rw("train_tau", &LayerOptions::train_tau)
      .def_rw("train_threshold", &LayerOptions::train_threshold);
  // name, what it is, sharpness if left out
  module.def("surrogates", [] {
    std::vector<std::tuple<std::string, std::string, double>> rows;
    for (const SurrogateRow& own : surrogates()) {
      rows.emplace_back(own.name, own.what, own.sharpness);
    }
    return rows;
  });
}

}  // namespace

void bind_network(nb::module_& module) {
  bind_layer(module);
  const auto forward = [](NetworkRun& run, const Array& inputs, const Array& outputs,
                          Addresses initial, Addresses final, Addresses parameters) {
    run.forward({strided(inputs), strided(outputs), std::move(initial), std::move(final),
                 std::move(parameters)});
  };
  const auto advance = [](NetworkRun& run, const Array& inputs, const Array& outputs,
                          Addresses initial, Addresses final, Addresses parameters) {
    run.advance({strided(inputs), strided(outputs), std::move(initial), std::move(final),
                 std::move(parameters)});
  };
  const auto backward = [](NetworkRun& run, const Array& inputs, const Array& of_outputs,
                           Addresses of_final, const Array& of_inputs, Addresses of_initial,
                           Addresses of_parameters) {
    run.backward(
        {.inputs = strided(inputs), .outputs = strided(of_outputs), .final = std::move(of_final)},
        {.inputs = strided(of_inputs),
         .initial = std::move(of_initial),
         .parameters = std::move(of_parameters)});
  };
  using Released = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<NetworkRun>(module, "NetworkRun")
      .def_prop_ro("layout",
                   [](const NetworkRun& run) {
                     std::vector<std::tuple<std::string, std::vector<std::int64_t>>> rows;
                     for (const NetworkParameter& own : run.layout()) {
                       rows.emplace_back(own.name, own.shape);
                     }
                     return rows;
                   })
      .def_prop_ro("state_arrays", &NetworkRun::state_arrays)
      .def_prop_ro("chunk", &NetworkRun::chunk)
      .def_prop_ro("plain_bytes", &NetworkRun::plain_bytes)
      .def_prop_rw("budget", &NetworkRun::budget, &NetworkRun::set_budget)
      .def("least_budget", &NetworkRun::least_budget, "strategy"_a, Released())
      .def("chain", &NetworkRun::chain)
      .def("forward", forward, "inputs"_a, "outputs"_a, "initial"_a, "final"_a, "parameters"_a,
           Released())
      .def("advance", advance, "inputs"_a, "outputs"_a, "initial"_a, "final"_a, "parameters"_a,
           Released())
      .def("backward", backward, "inputs"_a, "of_outputs"_a, "of_final"_a, "of_inputs"_a,
           "of_initial"_a, "of_parameters"_a, Released())
      .def("report", &NetworkRun::report);
  module.def("network_run", &network_run, nb::kw_only(), "dtype"_a, "layers"_a, "time_steps"_a,
             "batch"_a, "budget"_a = kUnlimited, "strategy"_a = "auto",
             "tiers"_a = std::vector<SlowTier>{}, "ledger"_a = nb::none(), "chunk"_a = 0,
             "threads"_a = 1, "input_gradient"_a = true,
             "batch_sizes"_a = std::vector<std::int64_t>{}, "reverse"_a = false, Released());
}

}  // namespace ebb::python
