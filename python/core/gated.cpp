// SPDX-License-Identifier: Apache-2.0
// Gated cells on a GPU, over arrays given by address.
#include "ebb/cell/gated.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "ebb/core/error.h"
#include "ebb/device/cuda_products.h"
#include "python/core/gpu_addresses.h"
#include "python/core/topics.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace ebb::python {
namespace {

GatedCell cell_of(const std::string& name) {
  if (name == "LSTM") return GatedCell::lstm;
  if (name == "GRU") return GatedCell::gru;
  if (name == "RNN_TANH") return GatedCell::rnn_tanh;
  if (name == "RNN_RELU") return GatedCell::rnn_relu;
  fail(ErrorCode::invalid_argument, "cell is '", name,
       "'; it must be LSTM, GRU, RNN_TANH or RNN_RELU");
}

GatedShape shape_of(const std::string& cell, const std::string& dtype, std::int64_t steps,
                    std::int64_t batch, std::int64_t hidden, bool backwards) {
  return {cell_of(cell), gated_number_of(dtype), steps, batch, hidden, backwards};
}

}  // namespace

void bind_gated(nb::module_& module) {
  nb::class_<GatedShape>(module, "GatedShape")
      .def(
          "__init__",
          [](GatedShape* self, const std::string& cell, const std::string& dtype,
             std::int64_t steps, std::int64_t batch, std::int64_t hidden, bool backwards) {
            new (self) GatedShape(shape_of(cell, dtype, steps, batch, hidden, backwards));
          },
          "cell"_a, "dtype"_a, "steps"_a, "batch"_a, "hidden"_a, "backwards"_a);
  module.def("gated_architectures", &gated_architectures);
  module.def("gated_unfit", &gated_unfit, "shape"_a);
  module.def(
      "gated_forward",
      [](const GatedShape& shape, Address weights, Address bias, Address sums, Address before,
         Address field_before, Address outputs, Address field_after, Address fields,
         Address products, bool record, Address stream) {
        GatedForward given;
        given.weights = on_gpu(weights);
        given.bias = on_gpu(bias);
        given.sums = on_gpu(sums);
        given.before = on_gpu(before);
        given.field_before = on_gpu<float>(field_before);
        given.outputs = on_gpu(outputs);
        given.field_after = on_gpu<float>(field_after);
        given.fields = on_gpu<float>(fields);
        given.products = on_gpu(products);
        gated_forward(shape, given, record, on_gpu(stream));
      },
      "shape"_a, "weights"_a, "bias"_a, "sums"_a, "before"_a, "field_before"_a, "outputs"_a,
      "field_after"_a, "fields"_a, "products"_a, "record"_a, "stream"_a);
  module.def(
      "gated_recall",
      [](const GatedShape& shape, Address sums, Address products, Address field_before,
         Address fields, Address stream) {
        GatedRecall given;
        given.sums = on_gpu(sums);
        given.products = on_gpu(products);
        given.field_before = on_gpu<float>(field_before);
        given.fields = on_gpu<float>(fields);
        gated_recall(shape, given, on_gpu(stream));
      },
      "shape"_a, "sums"_a, "products"_a, "field_before"_a, "fields"_a, "stream"_a);
  module.def(
      "gated_backward",
      [](const GatedShape& shape, Address weights, Address gates, Address fields, Address products,
         Address outputs, Address before, Address field_before, Address outputs_gradient,
         Address after_gradient, Address field_gradient, Address sums_gradient,
         Address inputs_gradient, Address before_gradient, Address field_before_gradient,
         Address stream) {
        GatedBackward given;
        given.weights = on_gpu(weights);
        given.gates = on_gpu(gates);
        given.fields = on_gpu<float>(fields);
        given.products = on_gpu(products);
        given.outputs = on_gpu(outputs);
        given.before = on_gpu(before);
        given.field_before = on_gpu<float>(field_before);
        given.outputs_gradient = on_gpu(outputs_gradient);
        given.after_gradient = on_gpu<float>(after_gradient);
        given.field_gradient = on_gpu<float>(field_gradient);
        given.sums_gradient = on_gpu(sums_gradient);
        given.inputs_gradient = on_gpu(inputs_gradient);
        given.before_gradient = on_gpu<float>(before_gradient);
        given.field_before_gradient = on_gpu<float>(field_before_gradient);
        gated_backward(shape, given, on_gpu(stream));
      },
      "shape"_a, "weights"_a, "gates"_a, "fields"_a, "products"_a, "outputs"_a, "before"_a,
      "field_before"_a, "outputs_gradient"_a, "after_gradient"_a, "field_gradient"_a,
      "sums_gradient"_a, "inputs_gradient"_a, "before_gradient"_a, "field_before_gradient"_a,
      "stream"_a);
  module.def("cublas_is_loaded", &cublas_is_loaded, "version"_a);
  module.def(
      "float_product",
      [](int cublas, Address handle, Address sums, std::int64_t sums_stride, std::int64_t rows,
         std::int64_t columns, std::int64_t inner, Address a, std::int64_t a_stride,
         bool a_transposed, Address b, std::int64_t b_stride, bool b_transposed, bool adds,
         bool tf32) {
        CudaProduct product;
        product.tf32 = tf32;
        product.a = on_gpu(a);
        product.b = on_gpu(b);
        product.a_transposed = a_transposed;
        product.b_transposed = b_transposed;
        product.rows = rows;
        product.columns = columns;
        product.inner = inner;
        product.a_stride = a_stride;
        product.b_stride = b_stride;
        product.sums_stride = sums_stride;
        product.sums = on_gpu(sums);
        product.adds = adds;
        multiply_with(cublas, on_gpu(handle), product);
      },
      "cublas"_a, "handle"_a, "sums"_a, "sums_stride"_a, "rows"_a, "columns"_a, "inner"_a, "a"_a,
      "a_stride"_a, "a_transposed"_a, "b"_a, "b_stride"_a, "b_transposed"_a, "adds"_a, "tf32"_a);
  module.def("set_gated_patience", &set_gated_patience, "looks"_a);
  module.def("set_gated_registers", &set_gated_registers, "yes"_a);
}

}  // namespace ebb::python
