// SPDX-License-Identifier: Apache-2.0
// What operations of torch take: bytes and seconds.
#pragma once

#include <ATen/record_function.h>
#include <c10/core/Allocator.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>
#include <vector>

#include "ebb/core/bytes.h"

namespace ebb::torch::detail {

// Of the memory behind the tensors; what several share counts once.
inline Bytes storage_bytes(const std::vector<at::Tensor>& tensors) {
  std::set<const void*> seen;
  Bytes sum = 0;
  for (const at::Tensor& tensor : tensors) {
    const auto& memory = tensor.storage();
    if (seen.insert(memory.unsafeGetStorageImpl()).second) sum += Bytes(memory.nbytes());
  }
  return sum;
}

// Counts the bytes that operations of this thread take and give back, as allocators tell them to
// profilers. What was there before does not count when it is given back.
class LiveBytes final : public c10::MemoryReportingInfoBase {
 public:
  explicit LiveBytes(at::Device device) : device_(device.type()) {}

  void reportMemoryUsage(void* block, std::int64_t bytes, std::size_t, std::size_t,
                         c10::Device device) override {
    if (device.type() != device_) return;
    const std::lock_guard lock(mutex_);
    if (bytes > 0) {
      blocks_[block] = bytes;
      live_ += bytes;
      peak_ = std::max(peak_, live_);
    } else if (const auto found = blocks_.find(block); found != blocks_.end()) {
      live_ -= found->second;
      blocks_.erase(found);
    }
  }
  bool memoryProfilingEnabled() const override { return true; }

  Bytes live() const { return live_; }
  // The most since the last call of this, beyond what was live then.
  Bytes take_peak() {
    const Bytes found = peak_ - start_;
    start_ = peak_ = live_;
    return found;
  }

 private:
  const c10::DeviceType device_;
  std::mutex mutex_;
  std::unordered_map<void*, Bytes> blocks_;
  Bytes live_ = 0, peak_ = 0, start_ = 0;
};

// While it lives, LiveBytes counts. A profiler of the caller's sees nothing of it.
class Counting {
 public:
  explicit Counting(at::Device device)
      : bytes_(std::make_shared<LiveBytes>(device)),
        guard_(c10::DebugInfoKind::PROFILER_STATE, bytes_) {}
  LiveBytes* operator->() { return bytes_.get(); }

 private:
  at::DisableRecordFunctionGuard quiet_;
  std::shared_ptr<LiveBytes> bytes_;
  c10::DebugInfoGuard guard_;
};

template <class Work>
double seconds_of(at::Device device, const Work& work) {
  const auto wait = [&] {
    if (!device.is_cpu()) at::zeros({1}, at::TensorOptions(device)).cpu();
  };
  wait();
  const auto start = std::chrono::steady_clock::now();
  work();
  wait();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace ebb::torch::detail
