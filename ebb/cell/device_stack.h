// SPDX-License-Identifier: Apache-2.0
// Layers above each other over a chunk of time steps on a CUDA device; see device_layer.h. States, tapes and scratch are bytes of
// the device at multiples of 256, parameters and their gradient floats, one layer after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "ebb/cell/device_layer.h"

namespace ebb {

class DeviceStack {
 public:
  using Layers = std::vector<std::unique_ptr<const DeviceLayer>>;

  // Lowest first, with as many inputs as the one below has units; number, chunk and batch are the same for all.
  explicit DeviceStack(Layers layers);

  const Layers& layers() const { return layers_; }
  std::int64_t chunk() const { return layers_.front()->sizes().chunk; }
  std::int64_t batch() const { return layers_.front()->sizes().batch; }
  std::int64_t inputs() const { return layers_.front()->sizes().inputs; }
  std::int64_t outputs() const { return layers_.back()->sizes().hidden; }
  Bytes number_bytes() const { return layers_.front()->number_bytes(); }
  Bytes output_bytes() const { return layers_.back()->output_bytes(); }

  std::int64_t parameter_size() const { return parameter_size_; }
  std::int64_t state_size() const { return state_size_; }  // floats of the caller's
  Bytes prepared_bytes() const { return prepared_bytes_; }
  Bytes sums_bytes() const { return sums_bytes_; }
  Bytes state_bytes() const { return state_bytes_; }
  Bytes adjoint_bytes() const { return adjoint_bytes_; }
  Bytes tape_bytes() const { return tape_bytes_; }
  Bytes scratch_bytes() const { return scratch_bytes_; }  // of advance and reverse
  Bytes record_bytes() const { return record_bytes_; }    // scratch of record

  // Once, before the first prepare.
  void begin(std::byte* prepared, void* stream) const;
  void prepare(const float* parameters, std::byte* prepared, void* stream) const;
  // The caller's states are those of each layer [B,F,H], one after the other; null: zeros.
  void load(const float* given, std::byte* state, void* stream) const;
  void store(const std::byte* state, float* to, void* stream) const;
  void load_adjoint(const float* given, std::byte* adjoint, void* stream) const;
  void store_adjoint(const std::byte* adjoint, float* to, void* stream) const;

  // x is [K,B,I], y [K,B,O], null if it is not wanted. The states are two.
  void advance(const DeviceWork& work, const std::byte* prepared, std::int64_t steps, const void* x,
               const std::byte* before, std::byte* after, void* y, std::byte* scratch) const;
  void record(const DeviceWork& work, const std::byte* prepared, std::int64_t steps, const void* x,
              const std::byte* before, std::byte* tape, void* y, std::byte* scratch) const;
  // The state after a chunk that was recorded.
  void state_of_tape(const std::byte* tape, std::int64_t steps, std::byte* state,
                     void* stream) const;

  struct Reversed {
    std::int64_t steps = 0;
    const void* x = nullptr;
    std::byte* tape = nullptr;            // used up
    const void* of_y = nullptr;           // may be null
    const std::byte* of_after = nullptr;  // adjoints, two
    std::byte* of_before = nullptr;
    void* of_x = nullptr;       // may be null
    float* gradient = nullptr;  // added to
    std::byte* sums = nullptr;  // added to; zeros to begin with
  };
  void reverse(const DeviceWork& work, const std::byte* prepared, const Reversed& given,
               std::byte* scratch) const;
  // After the last reverse: the gradient is whole then.
  void finish(const std::byte* prepared, const std::byte* sums, float* gradient,
              void* stream) const;

 private:
  // Where the parts of a layer begin.
  struct Places {
    std::int64_t parameters = 0, state_numbers = 0;
    Bytes prepared = 0, sums = 0, state = 0, adjoint = 0, tape = 0;
  };
  struct Between {
    std::byte* rows[2];
    std::byte* own;  // the scratch of one layer
    Bytes bytes;
  };
  Between forward_scratch(std::byte* memory) const;
  Between reverse_scratch(std::byte* memory) const;

  Layers layers_;
  std::vector<Places> places_;
  std::int64_t parameter_size_ = 0, state_size_ = 0;
  Bytes prepared_bytes_ = 0, sums_bytes_ = 0, state_bytes_ = 0, adjoint_bytes_ = 0, tape_bytes_ = 0,
        scratch_bytes_ = 0, record_bytes_ = 0;
};

}  // namespace ebb
