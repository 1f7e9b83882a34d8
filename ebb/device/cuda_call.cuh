// SPDX-License-Identifier: Apache-2.0
// Every call of CUDA is checked; what it says becomes an Error that names the call.
#pragma once

#include <cuda_runtime_api.h>

#include "ebb/core/error.h"

namespace ebb {

inline void check_cuda(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // or the next call would tell of it again
  const ErrorCode code =
      status == cudaErrorMemoryAllocation ? ErrorCode::out_of_memory : ErrorCode::device;
  fail(code, call, ": ", cudaGetErrorString(status));
}

}  // namespace ebb
