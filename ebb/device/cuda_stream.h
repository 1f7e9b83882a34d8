// SPDX-License-Identifier: Apache-2.0
// Queues of work on the CUDA device that is current, and marks in them that others wait for. A stream of the caller is the void* that
// a cudaStream_t is. All functions throw Error(device) where CUDA fails, Error(unavailable) in a build without it.
#pragma once

#include <utility>

namespace ebb {

class CudaEvent {
 public:
  CudaEvent();
  CudaEvent(CudaEvent&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  CudaEvent& operator=(CudaEvent&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  ~CudaEvent();

  // Happens when all is done that the stream has been given so far.
  void record(void* stream);
  // What the stream is given from now on waits for it; the caller does not.
  void hold(void* stream) const;
  // Waits for it. Both must have been recorded.
  double seconds_since(const CudaEvent& start) const;

 private:
  void* event_ = nullptr;
};

// A stream that waits for no other one by itself.
class CudaStream {
 public:
  CudaStream();
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  // Waits until it is done.
  ~CudaStream();

  void* get() const { return stream_; }

 private:
  void* stream_ = nullptr;
};

}  // namespace ebb
