// SPDX-License-Identifier: Apache-2.0
// Recurrent spiking cells on a GPU, over arrays given by address.
#include "ebb/cell/spiking.h"

#include <algorithm>

#include <nanobind/stl/string.h>

#include "ebb/cell/cell.h"
#include "ebb/core/error.h"
#include "python/core/gpu_addresses.h"
#include "python/core/topics.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace ebb::python {
namespace {

SpikingCell neuron_of(const std::string& name) {
  if (name == "LIF") return SpikingCell::lif;
  if (name == "ALIF") return SpikingCell::alif;
  if (name == "ADLIF") return SpikingCell::adlif;
  fail(ErrorCode::invalid_argument, "cell is '", name, "'; it must be LIF, ALIF or ADLIF");
}

Surrogate surrogate_of(const std::string& name) {
  const auto found = std::ranges::find(surrogates(), name, &SurrogateRow::name);
  if (found == surrogates().end())
    fail(ErrorCode::invalid_argument, "there is no surrogate '", name, "'");
  return static_cast<Surrogate>(found - surrogates().begin());
}

}  // namespace

void bind_spiking(nb::module_& module) {
  nb::class_<SpikingShape>(module, "SpikingShape")
      .def(
          "__init__",
          [](SpikingShape* self, const std::string& cell, const std::string& dtype,
             std::int64_t steps, std::int64_t batch, std::int64_t hidden, bool hard, bool attached,
             bool normalised, const std::string& surrogate, float sharpness, bool recurrent) {
            Constants<float> constants;
            constants.hard = hard ? 1 : 0;
            constants.attached = attached ? 1 : 0;
            constants.normalised = normalised ? 1 : 0;
            constants.sharpness = sharpness;
            new (self)
                SpikingShape{neuron_of(cell), gated_number_of(dtype),  steps,    batch, hidden,
                             constants,       surrogate_of(surrogate), recurrent};
          },
          "cell"_a, "dtype"_a, "steps"_a, "batch"_a, "hidden"_a, "hard"_a, "attached"_a,
          "normalised"_a, "surrogate"_a, "sharpness"_a, "recurrent"_a);
  module.def("spiking_unfit", &spiking_unfit, "shape"_a);
  module.def("spiking_kept", &spiking_kept, "shape"_a);
  module.def(
      "spiking_forward",
      [](const SpikingShape& shape, Address weights, Address parameters, Address sums,
         Address before, Address fields_before, Address outputs, Address fields_after,
         Address stream) {
        SpikingForward given;
        given.weights = on_gpu(weights);
        given.parameters = on_gpu<float>(parameters);
        given.sums = on_gpu(sums);
        given.before = on_gpu(before);
        given.fields_before = on_gpu<float>(fields_before);
        given.outputs = on_gpu(outputs);
        given.fields_after = on_gpu<float>(fields_after);
        spiking_forward(shape, given, on_gpu(stream));
      },
      "shape"_a, "weights"_a, "parameters"_a, "sums"_a, "before"_a, "fields_before"_a, "outputs"_a,
      "fields_after"_a, "stream"_a);
  module.def(
      "spiking_recall",
      [](const SpikingShape& shape, Address parameters, Address sums, Address before,
         Address outputs, Address fields_before, Address kept, Address stream) {
        SpikingRecall given;
        given.parameters = on_gpu<float>(parameters);
        given.sums = on_gpu(sums);
        given.before = on_gpu(before);
        given.outputs = on_gpu(outputs);
        given.fields_before = on_gpu<float>(fields_before);
        given.kept = on_gpu<float>(kept);
        spiking_recall(shape, given, on_gpu(stream));
      },
      "shape"_a, "parameters"_a, "sums"_a, "before"_a, "outputs"_a, "fields_before"_a, "kept"_a,
      "stream"_a);
  module.def(
      "spiking_backward",
      [](const SpikingShape& shape, Address weights, Address parameters, Address sums, Address kept,
         Address outputs, Address before, Address fields_before, Address outputs_gradient,
         Address after_gradient, Address fields_gradient, Address sums_gradient,
         Address before_gradient, Address fields_before_gradient, Address parameters_gradient,
         Address stream) {
        SpikingBackward given;
        given.weights = on_gpu(weights);
        given.parameters = on_gpu<float>(parameters);
        given.sums = on_gpu(sums);
        given.kept = on_gpu<float>(kept);
        given.outputs = on_gpu(outputs);
        given.before = on_gpu(before);
        given.fields_before = on_gpu<float>(fields_before);
        given.outputs_gradient = on_gpu(outputs_gradient);
        given.after_gradient = on_gpu<float>(after_gradient);
        given.fields_gradient = on_gpu<float>(fields_gradient);
        given.sums_gradient = on_gpu(sums_gradient);
        given.before_gradient = on_gpu<float>(before_gradient);
        given.fields_before_gradient = on_gpu<float>(fields_before_gradient);
        given.parameters_gradient = on_gpu<float>(parameters_gradient);
        spiking_backward(shape, given, on_gpu(stream));
      },
      "shape"_a, "weights"_a, "parameters"_a, "sums"_a, "kept"_a, "outputs"_a, "before"_a,
      "fields_before"_a, "outputs_gradient"_a, "after_gradient"_a, "fields_gradient"_a,
      "sums_gradient"_a, "before_gradient"_a, "fields_before_gradient"_a, "parameters_gradient"_a,
      "stream"_a);
}

}  // namespace ebb::python
