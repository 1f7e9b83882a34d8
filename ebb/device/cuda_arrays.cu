// SPDX-License-Identifier: Apache-2.0
#include "ebb/device/cuda_arrays.h"

#include <algorithm>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "ebb/device/cuda_call.cuh"

namespace ebb {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMostBlocks = 4096;  // each thread takes several numbers beyond that

__device__ float to_float(float x) { return x; }
__device__ float to_float(__half x) { return __half2float(x); }
__device__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
template <class To>
__device__ To of_float(float x);
template <>
__device__ float of_float<float>(float x) {
  return x;
}
template <>
__device__ __half of_float<__half>(float x) {
  return __float2half_rn(x);
}
template <>
__device__ __nv_bfloat16 of_float<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

__device__ std::int64_t first_of() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ std::int64_t all_of() { return static_cast<std::int64_t>(gridDim.x) * blockDim.x; }

template <class To, class From>
__global__ void convert(To* to, std::int64_t to_stride, const From* from, std::int64_t from_stride,
                        std::int64_t rows, std::int64_t columns) {
  for (std::int64_t i = first_of(); i < rows * columns; i += all_of()) {
    const std::int64_t row = i / columns, column = i % columns;
    to[row * to_stride + column] = of_float<To>(to_float(from[row * from_stride + column]));
  }
}

template <class To>
__global__ void add(To* to, const float* a, const float* b, std::int64_t count) {
  for (std::int64_t i = first_of(); i < count; i += all_of())
    to[i] = of_float<To>(b == nullptr ? a[i] : a[i] + b[i]);
}

template <class To>
__global__ void repeat(To* to, const To* row, std::int64_t rows, std::int64_t columns) {
  for (std::int64_t i = first_of(); i < rows * columns; i += all_of()) to[i] = row[i % columns];
}

template <class To>
__global__ void fill(To* to, float value, std::int64_t count) {
  for (std::int64_t i = first_of(); i < count; i += all_of()) to[i] = of_float<To>(value);
}

__global__ void decays(float* to, const float* tau, std::int64_t count) {
  for (std::int64_t i = first_of(); i < count; i += all_of())
    to[i] = tau[i] > 0.F ? expf(-1.F / fminf(tau[i], 1e6F)) : 0.F;
}

// d decay / d tau = decay / tau^2, and tau = -1 / ln decay.
__global__ void of_decays(float* gradient, const float* decays, std::int64_t count) {
  for (std::int64_t i = first_of(); i < count; i += all_of()) {
    const float decay = decays[i], log = decay > 0.F ? logf(decay) : 0.F;
    gradient[i] *= decay * log * log;
  }
}

// A warp has a row, so that rows of any length are read without gaps: f(place, entry).
constexpr int kLanes = 32;
template <class F>
__device__ void for_each(const CudaPlaces& places, const F& f) {
  for (std::int64_t row = first_of() / kLanes; row < places.rows; row += all_of() / kLanes) {
    for (std::int64_t i = places.starts[row] + threadIdx.x % kLanes; i < places.starts[row + 1];
         i += kLanes)
      f(row * places.width + places.columns[i], i);
  }
}

template <class To>
__global__ void scatter(To* matrix, CudaPlaces places, const float* numbers) {
  for_each(places,
           [&](std::int64_t place, std::int64_t i) { matrix[place] = of_float<To>(numbers[i]); });
}

__global__ void gather(float* numbers, CudaPlaces places, const float* matrix) {
  for_each(places, [&](std::int64_t place, std::int64_t i) { numbers[i] = matrix[place]; });
}

template <class F>
void with_number(CudaNumber number, const F& f) {
  if (number == CudaNumber::bf16) return f.template operator()<__nv_bfloat16>();
  if (number == CudaNumber::f16) return f.template operator()<__half>();
  return f.template operator()<float>();
}

// Calls launch(blocks, stream) where there is anything to do.
template <class Launch>
void over(std::int64_t count, void* stream, const char* what, const Launch& launch) {
  if (count == 0) return;
  const std::int64_t blocks = std::min(kMostBlocks, (count + kThreads - 1) / kThreads);
  launch(static_cast<unsigned>(blocks), static_cast<cudaStream_t>(stream));
  check_cuda(cudaGetLastError(), what);
}

}  // namespace

void cuda_copy(void* to, const void* from, Bytes bytes, void* stream) {
  check_cuda(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault,
                             static_cast<cudaStream_t>(stream)),
             "cudaMemcpyAsync");
}

void cuda_zero(void* to, Bytes bytes, void* stream) {
  check_cuda(
      cudaMemsetAsync(to, 0, static_cast<std::size_t>(bytes), static_cast<cudaStream_t>(stream)),
      "cudaMemsetAsync");
}

void cuda_convert(const CudaRows& to, const CudaRows& from, std::int64_t rows, std::int64_t columns,
                  void* stream) {
  with_number(to.number, [&]<class To>() {
    with_number(from.number, [&]<class From>() {
      over(rows * columns, stream, "cuda_convert", [&](unsigned blocks, cudaStream_t own) {
        convert<To, From><<<blocks, kThreads, 0, own>>>(static_cast<To*>(to.data), to.stride,
                                                        static_cast<const From*>(from.data),
                                                        from.stride, rows, columns);
      });
    });
  });
}

void cuda_add(CudaNumber number, void* to, const float* a, const float* b, std::int64_t count,
              void* stream) {
  with_number(number, [&]<class To>() {
    over(count, stream, "cuda_add", [&](unsigned blocks, cudaStream_t own) {
      add<To><<<blocks, kThreads, 0, own>>>(static_cast<To*>(to), a, b, count);
    });
  });
}

void cuda_repeat(CudaNumber number, void* to, const void* row, std::int64_t rows,
                 std::int64_t columns, void* stream) {
  with_number(number, [&]<class To>() {
    over(rows * columns, stream, "cuda_repeat", [&](unsigned blocks, cudaStream_t own) {
      repeat<To><<<blocks, kThreads, 0, own>>>(static_cast<To*>(to), static_cast<const To*>(row),
                                               rows, columns);
    });
  });
}

void cuda_decays(float* to, const float* tau, std::int64_t count, void* stream) {
  over(count, stream, "cuda_decays", [&](unsigned blocks, cudaStream_t own) {
    decays<<<blocks, kThreads, 0, own>>>(to, tau, count);
  });
}

void cuda_of_decays(float* gradient, const float* given, std::int64_t count, void* stream) {
  over(count, stream, "cuda_of_decays", [&](unsigned blocks, cudaStream_t own) {
    of_decays<<<blocks, kThreads, 0, own>>>(gradient, given, count);
  });
}

void cuda_fill(CudaNumber number, void* to, float value, std::int64_t count, void* stream) {
  with_number(number, [&]<class To>() {
    over(count, stream, "cuda_fill", [&](unsigned blocks, cudaStream_t own) {
      fill<To><<<blocks, kThreads, 0, own>>>(static_cast<To*>(to), value, count);
    });
  });
}

void cuda_scatter(CudaNumber number, void* matrix, const CudaPlaces& places, const float* numbers,
                  void* stream) {
  with_number(number, [&]<class To>() {
    over(places.rows * kLanes, stream, "cuda_scatter", [&](unsigned blocks, cudaStream_t own) {
      scatter<To><<<blocks, kThreads, 0, own>>>(static_cast<To*>(matrix), places, numbers);
    });
  });
}

void cuda_gather(float* numbers, const CudaPlaces& places, const float* matrix, void* stream) {
  over(places.rows * kLanes, stream, "cuda_gather", [&](unsigned blocks, cudaStream_t own) {
    gather<<<blocks, kThreads, 0, own>>>(numbers, places, matrix);
  });
}

}  // namespace ebb
