// SPDX-License-Identifier: Apache-2.0
// Products of matrices on a CUDA device by cuBLAS, which is looked for when the first one is wanted: in the process, then on the system.
// Sums are float32. The same product gives the same bits in every run on one kind of device with one version of cuBLAS.
#pragma once

#include <cstdint>

#include "ebb/device/cuda_arrays.h"

namespace ebb {

// sums [rows,columns] = a b, or += where it adds. a is [rows,inner], or [inner,rows] transposed; b is [inner,columns], or
// [columns,inner] transposed.
struct CudaProduct {
  CudaNumber number = CudaNumber::f32;  // of a and b
  bool tf32 = true;  // numbers of 32 bits are rounded to it before they are multiplied
  const void* a = nullptr;
  const void* b = nullptr;
  bool a_transposed = false, b_transposed = false;
  std::int64_t rows = 0, columns = 0, inner = 0;             // 1 to 2^31 - 1
  std::int64_t a_stride = 0, b_stride = 0, sums_stride = 0;  // numbers from row to row; 0: no gaps
  void* sums = nullptr;
  CudaNumber sums_number = CudaNumber::f32;  // f32, or as a and b
  bool adds = false;
};

class CudaProducts {
 public:
  // What cuBLAS may use for itself on the way; the caller's.
  static constexpr Bytes kWorkspace = Bytes{32} << 20;

  // For the device that is current. Throws Error(unavailable) that names the library if there is none, Error(device) where it fails.
  CudaProducts();
  CudaProducts(const CudaProducts&) = delete;
  CudaProducts& operator=(const CudaProducts&) = delete;
  ~CudaProducts();

  // Where products run from now on, and their memory, kWorkspace bytes at a multiple of 256.
  void use(void* stream, void* workspace);
  // Returns at once; the work is on the stream.
  void multiply(const CudaProduct& product);

 private:
  void* handle_ = nullptr;
};

// cuBLAS of somebody else in the process, of version 12 or 13: whether it is loaded.
bool cublas_is_loaded(int version);
// With a handle of it, on its stream and with its workspace. Its math mode is another one afterwards. Throws Error(unavailable) if it is
// not loaded.
void multiply_with(int cublas_version, void* handle, const CudaProduct& product);

}  // namespace ebb
