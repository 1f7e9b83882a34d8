// SPDX-License-Identifier: Apache-2.0
// The weights of one connection on a CUDA device. As parameters they are a matrix [rows,columns] of floats or, where a pattern says which
// weights there are, those alone, row after row. Products read a whole matrix in either case, with zeros where there is no weight, and add
// the gradient to a whole matrix, which lies apart from the parameters' where these are fewer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "ebb/cell/pattern.h"
#include "ebb/core/carver.h"
#include "ebb/device/cuda_arrays.h"
#include "ebb/device/cuda_products.h"

namespace ebb {

class DeviceWeights {
 public:
  // Without a pattern there are all.
  DeviceWeights(CudaNumber number, std::int64_t rows, std::int64_t columns,
                std::shared_ptr<const Pattern> pattern);

  std::int64_t size() const;  // floats of the parameters
  std::int64_t missing() const { return whole() - size(); }

  // What stays on the device from run to run.
  struct Prepared {
    std::byte* matrix = nullptr;  // as products read it
    std::int64_t* starts = nullptr;
    std::int32_t* columns = nullptr;
  };
  Prepared take_prepared(Carver& carver) const;
  // Once, before the first prepare. The weights must be there until the work is done.
  void begin(const Prepared& own, void* stream) const;
  void prepare(const Prepared& own, const float* parameters, void* stream) const;

  // Products of `count` rows with the weights [R,C]; `how` has the number that is multiplied and, for sums, where they go.
  // Sums [count,R] of inputs [count,C].
  void multiply(CudaProducts& products, CudaProduct how, const Prepared& own, std::int64_t count,
                const void* inputs) const;
  // The gradient of the inputs, in the number, from that of the sums.
  void multiply_back(CudaProducts& products, CudaProduct how, const Prepared& own,
                     std::int64_t count, const void* of_sums, void* of_inputs) const;
  // That of the weights, added to `sums`.
  void add_gradient(CudaProducts& products, CudaProduct how, std::int64_t count,
                    const void* of_sums, const void* inputs, float* sums) const;

  // Where products add the gradient: `gradient` itself, laid out as the parameters, or sums_bytes() of the carver. 0 to begin with.
  float* take_sums(Carver& carver, float* gradient) const;
  Bytes sums_bytes() const;
  // After the last sum: `gradient` from `sums`.
  void finish(const Prepared& own, const float* sums, float* gradient, void* stream) const;

 private:
  std::int64_t whole() const { return rows_ * columns_; }
  CudaPlaces places(const Prepared& own) const;

  CudaNumber number_;
  std::int64_t rows_, columns_;
  std::shared_ptr<const Pattern> pattern_;
};

}  // namespace ebb
