// SPDX-License-Identifier: Apache-2.0
// What training does on a device, as ebb/device/cuda_training.h says, on the host: for the device that the host plays.
#include <algorithm>
#include <cmath>
#include <vector>

#include "ebb/core/half_math.h"
#include "ebb/device/cuda_training.h"
#include "tests/stand_in/host_queue.h"

namespace ebb {

using test::queue_of;

void cuda_expand_bits(CudaNumber number, void* to, const std::uint64_t* words, std::int64_t rows,
                      std::int64_t columns, void* stream) {
  queue_of(stream)->add([=] {
    const std::int64_t width = (columns + 63) / 64;
    for (std::int64_t i = 0; i < rows * columns; ++i) {
      const std::int64_t column = i % columns;
      const std::uint64_t word = words[i / columns * width + column / 64];
      const float value = (word >> (column % 64) & 1) != 0 ? 1.F : 0.F;
      if (number == CudaNumber::f32) {
        static_cast<float*>(to)[i] = value;
      } else {
        static_cast<std::uint16_t*>(to)[i] =
            number == CudaNumber::bf16 ? to_bf16(value) : to_fp16(value);
      }
    }
  });
}

void cuda_cross_entropy(const CudaLosses& g, const std::int32_t* classes, void* stream) {
  queue_of(stream)->add([=] {
    for (std::int64_t row = 0; row < g.rows; ++row) {
      const std::vector<double> own(g.outputs + row * g.columns, g.outputs + (row + 1) * g.columns);
      const auto best = std::ranges::max_element(own);
      double sum = 0;
      for (const double output : own) sum += std::exp(output - *best);
      const std::int32_t target = classes[row];
      g.losses[row] = 0;
      g.right[row] = -1;
      if (target >= 0) {
        const double mine = own[static_cast<std::size_t>(target)];
        g.losses[row] = static_cast<float>(std::log(sum) - (mine - *best));
        g.right[row] = best - own.begin() == target ? 1.F : 0.F;
      }
      for (std::int64_t i = 0; g.gradient != nullptr && i < g.columns; ++i) {
        const double share = std::exp(own[static_cast<std::size_t>(i)] - *best) / sum;
        g.gradient[row * g.columns + i] =
            target < 0 ? 0 : g.scale * static_cast<float>(share - (i == target ? 1 : 0));
      }
    }
  });
}

void cuda_squared_error(const CudaLosses& g, const float* targets, void* stream) {
  queue_of(stream)->add([=] {
    for (std::int64_t row = 0; row < g.rows; ++row) {
      float sum = 0;
      bool any = false;
      for (std::int64_t i = row * g.columns; i < (row + 1) * g.columns; ++i) {
        const bool counts = !std::isnan(targets[i]);
        any = any || counts;
        const float off = counts ? g.outputs[i] - targets[i] : 0;
        sum += off * off / static_cast<float>(g.columns);
        if (g.gradient != nullptr)
          g.gradient[i] = g.scale * 2 * off / static_cast<float>(g.columns);
      }
      g.losses[row] = sum;
      g.right[row] = any ? 0 : -1;
    }
  });
}

void cuda_square_sums(double* sums, const float* numbers, std::int64_t count, void* stream) {
  queue_of(stream)->add([=] {
    std::fill_n(sums, kSums, 0.0);
    for (std::int64_t i = 0; i < count; ++i)
      sums[i % kSums] += static_cast<double>(numbers[i]) * static_cast<double>(numbers[i]);
  });
}

void cuda_score_sums(double* sums, const CudaLosses& g, void* stream) {
  queue_of(stream)->add([=] {
    for (std::int64_t row = 0; row < g.rows; ++row) {
      if (g.right[row] < 0) continue;
      double* const own = sums + row % kSums;
      own[0] += static_cast<double>(g.losses[row]);
      own[kSums] += static_cast<double>(g.right[row]);
      own[2 * kSums] += 1;
    }
  });
}

void cuda_sgd(const CudaSgd& h, float* values, const float* gradient, float* momentum,
              std::int64_t count, void* stream) {
  queue_of(stream)->add([=] {
    for (std::int64_t i = 0; i < count; ++i) {
      float change = gradient[i] * h.scale + h.decay * values[i];
      if (momentum != nullptr) change = momentum[i] = momentum[i] * h.momentum + change;
      values[i] -= h.rate * change;
    }
  });
}

void cuda_adam(const CudaAdam& h, float* values, const float* gradient, float* first, float* second,
               std::int64_t count, void* stream) {
  queue_of(stream)->add([=] {
    for (std::int64_t i = 0; i < count; ++i) {
      const float g = gradient[i] * h.scale + h.decay * values[i], apart = g - first[i];
      first[i] = h.rest1 < 0.5F ? first[i] + h.rest1 * apart : g - apart * h.beta1;
      second[i] = second[i] * h.beta2 + h.rest2 * g * g;
      values[i] =
          values[i] * h.shrink - h.rate * first[i] / (std::sqrt(second[i]) / h.root + h.epsilon);
    }
  });
}

}  // namespace ebb
