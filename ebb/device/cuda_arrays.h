// SPDX-License-Identifier: Apache-2.0
// What is done to arrays on a CUDA device beside products: copies, sums and changes of type. Calls return at once; the work is on the
// stream. All throw Error(device) where CUDA fails, Error(unavailable) in a build without it.
#pragma once

#include <cstdint>

#include "ebb/core/bytes.h"

namespace ebb {

enum class CudaNumber : std::uint8_t { bf16, f16, f32 };
constexpr Bytes bytes_of(CudaNumber number) { return number == CudaNumber::f32 ? 4 : 2; }

// Between any two memories, the host's included; ranges may not overlap.
void cuda_copy(void* to, const void* from, Bytes bytes, void* stream);
void cuda_zero(void* to, Bytes bytes, void* stream);

// Rows of numbers, each `stride` numbers after the one before.
struct CudaRows {
  CudaNumber number = CudaNumber::f32;
  void* data = nullptr;
  std::int64_t stride = 0;
};
// Rounds to the nearest, if at all. `from` is only read.
void cuda_convert(const CudaRows& to, const CudaRows& from, std::int64_t rows, std::int64_t columns,
                  void* stream);
// a + b, or a alone where b is null, in float and then rounded.
void cuda_add(CudaNumber number, void* to, const float* a, const float* b, std::int64_t count,
              void* stream);
// Each of the rows [rows,columns] becomes `row`.
void cuda_repeat(CudaNumber number, void* to, const void* row, std::int64_t rows,
                 std::int64_t columns, void* stream);
// e^(-1/tau) of each time constant, which cuts those beyond a million and is 0 for those of 0 or less; and gradients of these, which
// become those of time constants.
void cuda_decays(float* to, const float* tau, std::int64_t count, void* stream);
void cuda_of_decays(float* gradient, const float* decays, std::int64_t count, void* stream);
void cuda_fill(CudaNumber number, void* to, float value, std::int64_t count, void* stream);

// Places in a matrix [rows,width], row after row: those of a row are `columns`, rising, from its start on to the next one's. Arrays on the
// device.
struct CudaPlaces {
  const std::int64_t* starts = nullptr;  // [rows + 1]
  const std::int32_t* columns = nullptr;
  std::int64_t rows = 0, width = 0;
};
// One number for each place, written there and rounded to the nearest; all else in `matrix` stays as it is.
void cuda_scatter(CudaNumber number, void* matrix, const CudaPlaces& places, const float* numbers,
                  void* stream);
// The other way round.
void cuda_gather(float* numbers, const CudaPlaces& places, const float* matrix, void* stream);

}  // namespace ebb
