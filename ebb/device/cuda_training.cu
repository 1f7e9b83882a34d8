// SPDX-License-Identifier: Apache-2.0
#include "ebb/device/cuda_training.h"

#include <algorithm>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "ebb/device/cuda_call.cuh"

namespace ebb {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMostBlocks = 4096;  // each thread takes several numbers beyond that

__device__ std::int64_t first_of() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ std::int64_t all_of() { return static_cast<std::int64_t>(gridDim.x) * blockDim.x; }
unsigned blocks_of(std::int64_t count) {
  return static_cast<unsigned>(std::min(kMostBlocks, (count + kThreads - 1) / kThreads));
}
cudaStream_t own(void* stream) { return static_cast<cudaStream_t>(stream); }

template <class To>
__global__ void expand_bits(To* to, const std::uint64_t* words, std::int64_t rows,
                            std::int64_t columns) {
  const std::int64_t width = (columns + 63) / 64;
  for (std::int64_t i = first_of(); i < rows * columns; i += all_of()) {
    const std::int64_t row = i / columns, column = i % columns;
    const bool set = (words[row * width + column / 64] >> (column % 64) & 1) != 0;
    to[i] = static_cast<To>(set ? 1.F : 0.F);
  }
}

// A thread has a row: outputs are few.
__global__ void cross_entropy(const CudaLosses g, const std::int32_t* classes) {
  for (std::int64_t row = first_of(); row < g.rows; row += all_of()) {
    const std::int32_t target = classes[row];
    const float* const outputs = g.outputs + row * g.columns;
    float* const gradient = g.gradient == nullptr ? nullptr : g.gradient + row * g.columns;
    if (target < 0) {
      for (std::int64_t i = 0; gradient != nullptr && i < g.columns; ++i) gradient[i] = 0;
      g.losses[row] = 0;
      g.right[row] = -1;
      continue;
    }
    std::int64_t best = 0;
    for (std::int64_t i = 1; i < g.columns; ++i) {
      if (outputs[i] > outputs[best]) best = i;
    }
    const float largest = outputs[best], own_output = outputs[target];
    float sum = 0;
    for (std::int64_t i = 0; i < g.columns; ++i) sum += expf(outputs[i] - largest);
    g.losses[row] = logf(sum) - (own_output - largest);
    g.right[row] = best == target ? 1 : 0;
    for (std::int64_t i = 0; gradient != nullptr && i < g.columns; ++i) {
      const float share = expf(outputs[i] - largest) / sum;
      gradient[i] = g.scale * (share - (i == target ? 1.F : 0.F));
    }
  }
}

__global__ void squared_error(const CudaLosses g, const float* targets) {
  for (std::int64_t row = first_of(); row < g.rows; row += all_of()) {
    float sum = 0;
    bool any = false;
    for (std::int64_t i = row * g.columns; i < (row + 1) * g.columns; ++i) {
      const bool counts = !isnan(targets[i]);
      const float off = counts ? g.outputs[i] - targets[i] : 0.F;
      any = any || counts;
      sum += off * off / static_cast<float>(g.columns);
      if (g.gradient != nullptr) g.gradient[i] = g.scale * 2 * off / static_cast<float>(g.columns);
    }
    g.losses[row] = sum;
    g.right[row] = any ? 0 : -1;
  }
}

// The sum over a block, for its first thread.
__device__ double block_sum(double own) {
  __shared__ double parts[kThreads];
  parts[threadIdx.x] = own;
  __syncthreads();
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
    __syncthreads();
  }
  const double sum = parts[0];
  __syncthreads();  // before the next sum is begun
  return sum;
}

__global__ void square_sums(double* sums, const float* numbers, std::int64_t count) {
  double own = 0;
  for (std::int64_t i = first_of(); i < count; i += all_of())
    own += static_cast<double>(numbers[i]) * static_cast<double>(numbers[i]);
  const double sum = block_sum(own);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

__global__ void score_sums(double* sums, const CudaLosses g) {
  double loss = 0, right = 0, targets = 0;
  for (std::int64_t row = first_of(); row < g.rows; row += all_of()) {
    if (g.right[row] < 0) continue;
    loss += static_cast<double>(g.losses[row]);
    right += static_cast<double>(g.right[row]);
    targets += 1;
  }
  const double all[3] = {block_sum(loss), block_sum(right), block_sum(targets)};
  if (threadIdx.x != 0) return;
  for (int k = 0; k < 3; ++k) sums[k * kSums + blockIdx.x] += all[k];
}

__global__ void sgd(const CudaSgd h, float* values, const float* gradient, float* momentum,
                    std::int64_t count) {
  for (std::int64_t i = first_of(); i < count; i += all_of()) {
    float change = gradient[i] * h.scale + h.decay * values[i];
    if (momentum != nullptr) change = momentum[i] = momentum[i] * h.momentum + change;
    values[i] -= h.rate * change;
  }
}

__global__ void adam(const CudaAdam h, float* values, const float* gradient, float* first,
                     float* second, std::int64_t count) {
  const bool near = h.rest1 < 0.5F;  // as torch.lerp: from the nearer end
  for (std::int64_t i = first_of(); i < count; i += all_of()) {
    const float g = gradient[i] * h.scale + h.decay * values[i], apart = g - first[i];
    first[i] = near ? first[i] + h.rest1 * apart : g - apart * h.beta1;
    second[i] = second[i] * h.beta2 + h.rest2 * g * g;
    values[i] = values[i] * h.shrink - h.rate * first[i] / (sqrtf(second[i]) / h.root + h.epsilon);
  }
}

}  // namespace

void cuda_expand_bits(CudaNumber number, void* to, const std::uint64_t* words, std::int64_t rows,
                      std::int64_t columns, void* stream) {
  const auto run = [&]<class To>(To* numbers) {
    expand_bits<<<blocks_of(rows * columns), kThreads, 0, own(stream)>>>(numbers, words, rows,
                                                                         columns);
  };
  if (number == CudaNumber::bf16) {
    run(static_cast<__nv_bfloat16*>(to));
  } else if (number == CudaNumber::f16) {
    run(static_cast<__half*>(to));
  } else {
    run(static_cast<float*>(to));
  }
  check_cuda(cudaGetLastError(), "cuda_expand_bits");
}

void cuda_cross_entropy(const CudaLosses& given, const std::int32_t* classes, void* stream) {
  cross_entropy<<<blocks_of(given.rows), kThreads, 0, own(stream)>>>(given, classes);
  check_cuda(cudaGetLastError(), "cuda_cross_entropy");
}
void cuda_squared_error(const CudaLosses& given, const float* targets, void* stream) {
  squared_error<<<blocks_of(given.rows), kThreads, 0, own(stream)>>>(given, targets);
  check_cuda(cudaGetLastError(), "cuda_squared_error");
}
void cuda_square_sums(double* sums, const float* numbers, std::int64_t count, void* stream) {
  square_sums<<<kSums, kThreads, 0, own(stream)>>>(sums, numbers, count);
  check_cuda(cudaGetLastError(), "cuda_square_sums");
}
void cuda_score_sums(double* sums, const CudaLosses& given, void* stream) {
  score_sums<<<kSums, kThreads, 0, own(stream)>>>(sums, given);
  check_cuda(cudaGetLastError(), "cuda_score_sums");
}
void cuda_sgd(const CudaSgd& how, float* values, const float* gradient, float* momentum,
              std::int64_t count, void* stream) {
  sgd<<<blocks_of(count), kThreads, 0, own(stream)>>>(how, values, gradient, momentum, count);
  check_cuda(cudaGetLastError(), "cuda_sgd");
}
void cuda_adam(const CudaAdam& how, float* values, const float* gradient, float* first,
               float* second, std::int64_t count, void* stream) {
  adam<<<blocks_of(count), kThreads, 0, own(stream)>>>(how, values, gradient, first, second, count);
  check_cuda(cudaGetLastError(), "cuda_adam");
}

}  // namespace ebb
