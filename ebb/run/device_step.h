// SPDX-License-Identifier: Apache-2.0
// A plan's actions on a CUDA device: where states and tapes of a DeviceStack lie, and when they come and go. One chunk of time steps is
// a step of the plan.
//
// All that computes is on the caller's stream, in the order of the actions. States that leave the device or come back are copied on
// another stream; what needs them waits for an event. The host does not wait, but for copies to and from memory that is not pinned.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "ebb/cell/device_stack.h"
#include "ebb/device/cuda_pool.h"
#include "ebb/device/cuda_stream.h"
#include "ebb/device/pinned_memory.h"
#include "ebb/run/device_network.h"
#include "ebb/run/handle_run.h"

namespace ebb {

// Memory of the device that the stream of copies may be busy with.
class DeviceItem {
 public:
  DeviceItem() = default;
  DeviceItem(CudaBlock block, void* stream) : block_(std::move(block)), stream_(stream) {}
  DeviceItem(DeviceItem&&) noexcept = default;
  DeviceItem& operator=(DeviceItem&& other) noexcept;
  // What is under way to or from it comes first.
  ~DeviceItem();

  explicit operator bool() const { return block_.data() != nullptr; }
  // Whether a copy out may still read it.
  bool was_sent() const { return leaves_.has_value(); }
  // For the stream, which waits for what is under way to it.
  std::byte* data();
  // Copies on `other` after what the stream has been given.
  void send(std::byte* to, Bytes bytes, void* other);
  void fetch(const std::byte* from, Bytes bytes, void* other);

 private:
  CudaBlock block_;
  void* stream_ = nullptr;
  std::optional<CudaEvent> arrives_, leaves_;
};

class DeviceStep : public HandleStep {
 public:
  // What a call of the network is given.
  struct Forward {
    void* stream = nullptr;
    const std::byte* x = nullptr;  // null: `inputs` makes them
    DeviceInputs inputs = {};
    std::byte* y = nullptr;
    const float* initial = nullptr;
    float* final = nullptr;
  };
  struct Backward {
    const std::byte* of_y = nullptr;
    std::byte* of_x = nullptr;
    const float* of_final = nullptr;
    float* of_initial = nullptr;
    float* gradient = nullptr;
    std::byte* sums = nullptr;  // of the stack's sums_bytes()
  };

  // All that is given must outlive it. `host` has room for `host_bytes` of states. It takes no more than `most` from the pool, unless
  // the plan needs more.
  DeviceStep(const DeviceStack& stack, std::int64_t time_steps, CudaPool& pool, Bytes most,
             CudaProducts& products, const std::byte* prepared, PinnedMemory host,
             Bytes host_bytes);

  // Before and after the run's forward, and before and after its backward.
  void begin(const Forward& given);
  void end_forward();
  void begin_backward(const Backward& given);
  void end_backward();
  // Forgets all that is kept.
  void clear() noexcept;

  std::int64_t advance(const StepSpan& span) override;
  void record(const StepSpan& span) override;
  void reverse(std::int64_t from, std::int64_t to) override;
  void copy(const Copy& copy) override;
  void drop(const Drop& drop) override;

 private:
  std::int64_t steps_of(std::int64_t step) const;
  // Those of the caller, or made for the step, in memory that is given back with it.
  struct Inputs {
    DeviceItem made;
    const std::byte* x = nullptr;
  };
  Inputs inputs_of(std::int64_t step);
  std::byte* y_of(std::int64_t step, bool first) const;
  Bytes input_row() const { return batch_ * stack_.inputs() * stack_.number_bytes(); }
  Bytes output_row() const { return batch_ * stack_.outputs() * stack_.output_bytes(); }
  DeviceWork work() const { return {&products_, forward_.stream}; }
  DeviceItem take(Bytes bytes);
  void retire(DeviceItem item);
  DeviceItem state_in_fast(std::int64_t step);
  void passed(std::int64_t step, bool first);

  const DeviceStack& stack_;
  std::int64_t time_steps_, batch_;
  CudaPool& pool_;
  Bytes most_;
  CudaProducts& products_;
  const std::byte* prepared_;
  Forward forward_;
  Backward backward_;
  PinnedMemory host_;
  CudaStream copies_;

  DeviceItem live_;
  std::int64_t live_at_ = 0;  // the step it is before
  DeviceItem of_after_, of_before_;
  std::map<std::int64_t, DeviceItem> kept_, tapes_;
  // Of no use any more but for copies out, oldest first. They are charged until their memory is wanted: only then the stream waits.
  std::deque<DeviceItem> leaving_;
  // Places in host_: one stream writes and reads them, so that one that is free may be written at once.
  std::map<std::int64_t, std::int64_t> places_;
  std::vector<std::int64_t> unused_;
};

}  // namespace ebb
