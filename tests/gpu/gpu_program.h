// SPDX-License-Identifier: Apache-2.0
// What programs that compute-sanitizer runs have in common. Each of their arrays is an allocation of its own, as long as a contract says, so
// that an access beyond it is seen.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <random>
#include <vector>

#include "ebb/cell/gated.h"
#include "ebb/core/error.h"

namespace ebb {

inline void check(cudaError_t status, const char* call) {
  if (status != cudaSuccess) fail(ErrorCode::device, call, ": ", cudaGetErrorString(status));
}

inline std::size_t size_of(GatedNumber number) {
  return static_cast<std::size_t>(bytes_of(number));
}

// The value in a number's format, whose bits are the lowest; it must not be tiny.
inline std::uint32_t bits_of(GatedNumber number, float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, 4);
  if (size_of(number) == 4) return bits;
  if (number == GatedNumber::bf16) return bits >> 16;
  const std::uint32_t exponent = (bits >> 23 & 0xFF) - 112;
  return (bits >> 16 & 0x8000) | exponent << 10 | (bits >> 13 & 0x3FF);
}

inline bool is_finite(GatedNumber number, const unsigned char* at) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, at, size_of(number));
  const std::uint32_t exponent = size_of(number) == 4          ? 0x7F800000
                                 : number == GatedNumber::bf16 ? 0x7F80
                                                               : 0x7C00;
  return (bits & exponent) != exponent;
}

// Memory of the GPU, filled with random numbers of `scale` or, where that is 0, with what is no number.
class Array {
 public:
  Array(GatedNumber number, std::int64_t count, float scale) : number_(number), count_(count) {
    std::vector<unsigned char> content(bytes(), 0xFF);
    static std::mt19937 engine(7);
    std::uniform_real_distribution<float> random(scale / 4, scale);
    if (scale > 0) {
      for (std::int64_t i = 0; i < count; ++i) {
        const std::uint32_t bits =
            bits_of(number, engine() % 2 == 0 ? random(engine) : -random(engine));
        std::memcpy(&content[static_cast<std::size_t>(i) * size_of(number)], &bits,
                    size_of(number));
      }
    }
    check(cudaMalloc(&at_, bytes()), "cudaMalloc");
    check(cudaMemcpy(at_, content.data(), bytes(), cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  ~Array() { cudaFree(at_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  void* at() const { return at_; }
  float* floats() const { return static_cast<float*>(at_); }

  bool all_finite() const {
    std::vector<unsigned char> content(bytes());
    check(cudaMemcpy(content.data(), at_, bytes(), cudaMemcpyDeviceToHost), "cudaMemcpy");
    for (std::size_t i = 0; i < content.size(); i += size_of(number_)) {
      if (!is_finite(number_, &content[i])) return false;
    }
    return true;
  }

 private:
  std::size_t bytes() const { return static_cast<std::size_t>(count_) * size_of(number_); }

  GatedNumber number_;
  std::int64_t count_;
  void* at_ = nullptr;
};

inline bool finished(const char* what, std::initializer_list<const Array*> results) {
  check(cudaDeviceSynchronize(), what);
  for (const Array* each : results) {
    if (!each->all_finite()) return false;
  }
  return true;
}

// What a program says at its end, and its exit status.
inline int told(const char* what, int ran, int failed) {
  std::printf("%d %s, %d failed\n", ran, what, failed);
  return failed == 0 ? 0 : 1;
}

inline int run_program(int (*run_all)()) {
  try {
    return run_all();
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}

}  // namespace ebb
