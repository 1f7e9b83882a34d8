// SPDX-License-Identifier: Apache-2.0
// What training does to arrays on a CUDA device beside running a network: inputs from bits, losses, steps of optimisers. Calls return at
// once; the work is on the stream. All throw Error(device) where CUDA fails, Error(unavailable) in a build without it.
#pragma once

#include <cstdint>

#include "ebb/device/cuda_arrays.h"

namespace ebb {

// Rows of `columns` numbers, 1 where a bit is set: column i is bit i % 64 of word i / 64 of its row.
void cuda_expand_bits(CudaNumber number, void* to, const std::uint64_t* words, std::int64_t rows,
                      std::int64_t columns, void* stream);

// The loss of each row of outputs [R,O], its gradient times `scale`, and whether the row is right (1 or 0). A row without a target has a
// gradient of 0, a loss of 0 and -1 for right. The gradient may be where the outputs are.
struct CudaLosses {
  const float* outputs = nullptr;
  std::int64_t rows = 0, columns = 0;
  float scale = 1;
  float* gradient = nullptr;  // [R,O]; null: not wanted
  float* losses = nullptr;    // [R]
  float* right = nullptr;     // [R]
};
// By the class of each row; -1: it has none. In nats.
void cuda_cross_entropy(const CudaLosses& given, const std::int32_t* classes, void* stream);
// By targets [R,O], averaged over the outputs; those that are NaN do not count. Nothing is right.
void cuda_squared_error(const CudaLosses& given, const float* targets, void* stream);

// Sums in double, of as many parts as there are places; added up in their order they have the same bits in every run.
constexpr int kSums = 256;
// Of squares, [kSums].
void cuda_square_sums(double* sums, const float* numbers, std::int64_t count, void* stream);
// Of losses, of rows that are right and of rows that have a target, [3,kSums]; added to what is there.
void cuda_score_sums(double* sums, const CudaLosses& given, void* stream);

// A step as ebb/train/optimiser.h has it; all numbers but the arrays are those of one step.
struct CudaSgd {
  float scale = 1, decay = 0, momentum = 0, rate = 0;
};
void cuda_sgd(const CudaSgd& how, float* values, const float* gradient, float* momentum,
              std::int64_t count, void* stream);  // momentum: null if there is none
struct CudaAdam {
  float scale = 1, shrink = 1, decay = 0, beta1 = 0, beta2 = 0, rest1 = 0, rest2 = 0, epsilon = 0,
        rate = 0, root = 1;
};
void cuda_adam(const CudaAdam& how, float* values, const float* gradient, float* first,
               float* second, std::int64_t count, void* stream);

}  // namespace ebb
