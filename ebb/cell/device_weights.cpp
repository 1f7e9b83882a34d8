// SPDX-License-Identifier: Apache-2.0
#include "ebb/cell/device_weights.h"

#include <utility>
#include <vector>

#include "ebb/cell/device_arrays.h"

namespace ebb {
namespace {

template <class Number>
Bytes bytes_in(const std::vector<Number>& all) {
  return static_cast<Bytes>(all.size() * sizeof(Number));
}

}  // namespace

DeviceWeights::DeviceWeights(CudaNumber number, std::int64_t rows, std::int64_t columns,
                             std::shared_ptr<const Pattern> pattern)
    : number_(number), rows_(rows), columns_(columns), pattern_(std::move(pattern)) {}

std::int64_t DeviceWeights::size() const {
  return pattern_ == nullptr ? whole() : static_cast<std::int64_t>(pattern_->columns.size());
}

DeviceWeights::Prepared DeviceWeights::take_prepared(Carver& carver) const {
  Prepared found;
  found.matrix = take_array(carver, whole() * bytes_of(number_));
  if (pattern_ == nullptr) return found;
  found.starts = reinterpret_cast<std::int64_t*>(take_array(carver, bytes_in(pattern_->starts)));
  found.columns = reinterpret_cast<std::int32_t*>(take_array(carver, bytes_in(pattern_->columns)));
  return found;
}

void DeviceWeights::begin(const Prepared& own, void* stream) const {
  if (pattern_ == nullptr) return;
  // Nothing else is ever written where there is no weight.
  cuda_zero(own.matrix, whole() * bytes_of(number_), stream);
  cuda_copy(own.starts, pattern_->starts.data(), bytes_in(pattern_->starts), stream);
  if (size() > 0)
    cuda_copy(own.columns, pattern_->columns.data(), bytes_in(pattern_->columns), stream);
}

void DeviceWeights::prepare(const Prepared& own, const float* parameters, void* stream) const {
  if (pattern_ == nullptr) {
    cuda_add(number_, own.matrix, parameters, nullptr, whole(), stream);
  } else {
    cuda_scatter(number_, own.matrix, places(own), parameters, stream);
  }
}

void DeviceWeights::multiply(CudaProducts& products, CudaProduct how, const Prepared& own,
                             std::int64_t count, const void* inputs) const {
  how.a = inputs;
  how.b = own.matrix;
  how.b_transposed = true;
  how.rows = count;
  how.columns = rows_;
  how.inner = columns_;
  products.multiply(how);
}

void DeviceWeights::multiply_back(CudaProducts& products, CudaProduct how, const Prepared& own,
                                  std::int64_t count, const void* of_sums, void* of_inputs) const {
  how.sums_number = number_;
  how.a = of_sums;
  how.b = own.matrix;
  how.rows = count;
  how.columns = columns_;
  how.inner = rows_;
  how.sums = of_inputs;
  products.multiply(how);
}

void DeviceWeights::add_gradient(CudaProducts& products, CudaProduct how, std::int64_t count,
                                 const void* of_sums, const void* inputs, float* sums) const {
  how.a = of_sums;
  how.a_transposed = how.adds = true;
  how.b = inputs;
  how.rows = rows_;
  how.columns = columns_;
  how.inner = count;
  how.sums = sums;
  products.multiply(how);
}

float* DeviceWeights::take_sums(Carver& carver, float* gradient) const {
  return pattern_ == nullptr ? gradient : take_floats(carver, whole());
}

Bytes DeviceWeights::sums_bytes() const {
  Carver carver(nullptr);
  take_sums(carver, nullptr);
  return carver.used();
}

void DeviceWeights::finish(const Prepared& own, const float* sums, float* gradient,
                           void* stream) const {
  if (pattern_ != nullptr) cuda_gather(gradient, places(own), sums, stream);
}

CudaPlaces DeviceWeights::places(const Prepared& own) const {
  return {own.starts, own.columns, rows_, columns_};
}

}  // namespace ebb
