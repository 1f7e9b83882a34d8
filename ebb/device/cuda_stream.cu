// SPDX-License-Identifier: Apache-2.0
#include "ebb/device/cuda_stream.h"

#include "ebb/device/cuda_call.cuh"

namespace ebb {

CudaEvent::CudaEvent() {
  cudaEvent_t made = nullptr;
  check_cuda(cudaEventCreate(&made), "cudaEventCreate");
  event_ = made;
}

CudaEvent::~CudaEvent() {
  if (event_ != nullptr) cudaEventDestroy(static_cast<cudaEvent_t>(event_));
}

void CudaEvent::record(void* stream) {
  check_cuda(cudaEventRecord(static_cast<cudaEvent_t>(event_), static_cast<cudaStream_t>(stream)),
             "cudaEventRecord");
}

void CudaEvent::hold(void* stream) const {
  check_cuda(
      cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), static_cast<cudaEvent_t>(event_), 0),
      "cudaStreamWaitEvent");
}

double CudaEvent::seconds_since(const CudaEvent& start) const {
  check_cuda(cudaEventSynchronize(static_cast<cudaEvent_t>(event_)), "cudaEventSynchronize");
  float milliseconds = 0;
  check_cuda(cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(start.event_),
                                  static_cast<cudaEvent_t>(event_)),
             "cudaEventElapsedTime");
  return milliseconds * 1e-3;
}

CudaStream::CudaStream() {
  cudaStream_t made = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  stream_ = made;
}

CudaStream::~CudaStream() {
  cudaStreamSynchronize(static_cast<cudaStream_t>(stream_));
  cudaStreamDestroy(static_cast<cudaStream_t>(stream_));
}

}  // namespace ebb
