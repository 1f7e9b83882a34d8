// SPDX-License-Identifier: Apache-2.0
// A readout on a CUDA device, linear or leaky: the top of a stack. Its parameters: weight_ih [O,I], or those weights that there are,
// bias_ih [O] if there is one and, of a leaky one, a time constant of each output. It gives out floats, whatever number products read. A
// state has the outputs of a leaky one, and nothing of a linear one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "ebb/cell/device_layer.h"

namespace ebb {

struct ReadoutLayerOptions : DeviceSizes {
  bool leaky = false, bias = true;
  bool learns_tau = false;
};

class ReadoutLayer : public DeviceLayer {
 public:
  explicit ReadoutLayer(const ReadoutLayerOptions& options)
      : DeviceLayer(options),
        options_(options),
        input_(number(), options.hidden, options.inputs, options.input_pattern) {}

  std::string unfit() const override { return {}; }
  std::int64_t fields() const override { return options_.leaky ? 1 : 0; }
  bool is_recurrent() const override { return false; }
  Bytes output_bytes() const override { return sizeof(float); }
  std::int64_t parameter_size() const override { return parameters().size; }
  std::int64_t multiplied_size() const override { return parameter_size() + input_.missing(); }
  Bytes prepared_bytes() const override { return prepared_at(nullptr).bytes; }
  Bytes sums_bytes() const override { return input_.sums_bytes(); }
  Bytes state_bytes() const override { return state_at(nullptr).bytes; }
  Bytes adjoint_bytes() const override { return state_bytes(); }
  Bytes tape_bytes() const override { return tape_at(nullptr).bytes; }
  Bytes forward_bytes() const override { return 0; }
  Bytes record_bytes() const override { return 0; }
  Bytes reverse_bytes() const override { return scratch_at(nullptr).bytes; }
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
    std::int64_t bias, tau, size;
  };
  struct Prepared {
    DeviceWeights::Prepared w_ih;
    float *bias, *ones, *decays;  // a one for each row
    Bytes bytes;
  };
  struct State {
    float* outputs;  // null of a linear one
    Bytes bytes;
  };
  struct Tape {
    float *outputs, *before;
    Bytes bytes;
  };
  struct Scratch {
    float *of_sums, *of_decays;
    std::byte* rounded;  // of_sums as products read them
    Bytes bytes;
  };

  Bytes state_floats() const { return units() * static_cast<Bytes>(sizeof(float)); }
  Parameters parameters() const;
  Prepared prepared_at(std::byte* memory) const;
  // Where the gradient of weights is added up.
  float* sums_at(std::byte* memory, float* gradient) const;
  State state_at(std::byte* memory) const;
  Tape tape_at(std::byte* memory) const;
  Scratch scratch_at(std::byte* memory) const;
  void copy(void* to, const void* from, void* stream) const;
  void run(const DeviceWork& work, const Prepared& own, std::int64_t steps, const void* x,
           const float* before, float* outputs, float* after) const;
  void add_gradients(const DeviceWork& work, const Prepared& own, const Reversed& given,
                     const float* of_sums, const Scratch& scratch) const;

  ReadoutLayerOptions options_;
  DeviceWeights input_;
};

}  // namespace ebb
