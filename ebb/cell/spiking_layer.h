// SPDX-License-Identifier: Apache-2.0
// A spiking layer on a CUDA device, by the kernels of spiking.h. Its parameters: weight_ih [H,I], weight_hh [H,H] if it is recurrent, or
// those weights that there are, bias_ih [H] if there is one, and then the numbers of each unit, [H] each, with time constants where kernels
// have decays. Fields of a state: those of the cell, and then the spikes as 0 and 1.
//
// A tape is the spikes, and the fields before them: all else is made again from these and the inputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "ebb/cell/device_layer.h"
#include "ebb/cell/spiking.h"

namespace ebb {

struct SpikingLayerOptions : DeviceSizes {
  SpikingCell cell = SpikingCell::lif;
  bool bias = true, recurrent = true;
  Constants<float> constants = {};
  Surrogate surrogate = Surrogate::fast_sigmoid;
  bool learns_threshold = false, learns_others = false;  // of the numbers of units
};

class SpikingLayer : public DeviceLayer {
 public:
  explicit SpikingLayer(const SpikingLayerOptions& options);

  std::string unfit() const override;
  std::int64_t fields() const override { return own_fields() + 1; }
  std::int64_t parameter_size() const override;
  std::int64_t multiplied_size() const override;
  bool is_recurrent() const override { return options_.recurrent; }
  Bytes prepared_bytes() const override;
  Bytes sums_bytes() const override;
  Bytes state_bytes() const override;
  Bytes adjoint_bytes() const override;
  Bytes tape_bytes() const override;
  Bytes forward_bytes() const override;
  Bytes record_bytes() const override { return forward_bytes(); }
  Bytes reverse_bytes() const override;
  void begin(std::byte* prepared, void* stream) const override;
  void prepare(const float* parameters, std::byte* prepared, void* stream) const override;
  void load(const float* given, std::byte* state, void* stream) const override;
  void store(const std::byte* state, float* to, void* stream) const override;
  void load_adjoint(const float* given, std::byte* adjoint, void* stream) const override;
  void store_adjoint(const std::byte* adjoint, float* to, void* stream) const override;
  void advance(const DeviceWork& work, const std::byte* prepared, std::int64_t steps, const void* x,
               const std::byte* before, std::byte* after, void* outputs,
               std::byte* scratch) const override;
  const void* record(const DeviceWork& work, const std::byte* prepared, std::int64_t steps,
                     const void* x, const std::byte* before, std::byte* tape,
                     std::byte* scratch) const override;
  const void* outputs_of_tape(const std::byte* tape) const override;
  void state_of_tape(const std::byte* tape, std::int64_t steps, std::byte* state,
                     void* stream) const override;
  void reverse(const DeviceWork& work, const std::byte* prepared, const Reversed& given,
               std::byte* scratch) const override;
  void finish(const std::byte* prepared, const std::byte* sums, float* gradient,
              void* stream) const override;

 private:
  struct Parameters {
    std::int64_t weight_hh, bias, numbers, size;
  };
  struct Prepared {
    DeviceWeights::Prepared w_ih, w_hh;
    std::byte *bias, *ones;
    float *numbers, *samples;  // of each unit; a one for each sample
    Bytes bytes;
  };
  // Where gradients of weights are added up.
  struct Sums {
    float *w_ih, *w_hh;
  };
  struct State {
    std::byte* spikes;
    float* fields;  // [F,B,H]
    Bytes bytes;
  };
  struct Adjoint {
    float *spikes, *fields;
    Bytes bytes;
  };
  struct Tape {
    std::byte* spikes;  // those before, and then those of each step
    float *before, *after;
    Bytes bytes;
  };
  struct Scratch {
    std::byte* sums;
    float *kept, *of_numbers;
    Bytes bytes;
  };

  int own_fields() const { return options_.cell == SpikingCell::lif ? 1 : 2; }
  int numbers() const;  // of a unit
  bool is_time_constant(int number) const;
  bool learns(int number) const;
  bool learns_any() const { return options_.learns_threshold || options_.learns_others; }
  SpikingShape shape(std::int64_t steps) const;
  Parameters parameters() const;
  Prepared prepared_at(std::byte* memory) const;
  Sums sums_at(std::byte* memory, float* gradient) const;
  State state_at(std::byte* memory) const;
  Adjoint adjoint_at(std::byte* memory) const;
  Tape tape_at(std::byte* memory) const;
  Scratch scratch_at(std::byte* memory) const;
  void add_inputs(const DeviceWork& work, const Prepared& own, std::int64_t steps, const void* x,
                  std::byte* sums) const;
  void run(const DeviceWork& work, const Prepared& own, std::int64_t steps, const std::byte* sums,
           const std::byte* spikes, const float* fields, void* outputs, float* after) const;
  void add_gradients(const DeviceWork& work, const Prepared& own, const Reversed& given,
                     const Scratch& scratch) const;

  SpikingLayerOptions options_;
  DeviceWeights input_, recurrent_;  // the second has no rows where the layer is not recurrent
};

}  // namespace ebb
