// SPDX-License-Identifier: Apache-2.0
// A gated layer on a CUDA device, by the kernels of gated.h. Its parameters: weight_ih [G*H,I], weight_hh [G*H,H], or those weights that
// there are, if there are any bias_ih and bias_hh [G*H], and of an egru its thresholds [H]. Fields of a state: h and then, of an lstm or
// an egru, c.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "ebb/cell/device_layer.h"
#include "ebb/cell/gated.h"

namespace ebb {

struct GatedLayerOptions : DeviceSizes {
  GatedCell cell = GatedCell::lstm;
  bool bias = true;
  // Of an egru.
  Surrogate surrogate = Surrogate::triangular;
  float sharpness = 0;
  bool learns_threshold = false;
};

class GatedLayer : public DeviceLayer {
 public:
  explicit GatedLayer(const GatedLayerOptions& options);

  std::string unfit() const override;
  std::int64_t fields() const override { return has_c() ? 2 : 1; }
  std::int64_t parameter_size() const override;
  std::int64_t multiplied_size() const override;
  Bytes prepared_bytes() const override;
  Bytes sums_bytes() const override;
  Bytes state_bytes() const override;
  Bytes adjoint_bytes() const override;
  Bytes tape_bytes() const override;
  Bytes forward_bytes() const override;
  Bytes record_bytes() const override { return 0; }
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
    std::int64_t weight_hh, bias_ih, bias_hh, thresholds, size;
  };
  struct Prepared {
    DeviceWeights::Prepared w_ih, w_hh;
    std::byte *bias, *gate_bias, *ones;
    float *thresholds, *samples;  // null but of an egru; a one for each sample where they learn
    Bytes bytes;
  };
  // Where gradients of weights are added up.
  struct Sums {
    float *w_ih, *w_hh;
  };
  struct State {
    std::byte* h;  // null of a gru
    float* field;  // null of an rnn
    Bytes bytes;
  };
  struct Adjoint {
    float *h, *field;  // field null where there is no c
    Bytes bytes;
  };
  struct Tape {
    std::byte *gates, *hs, *products;
    float *field_before, *fields, *field_after;
    Bytes bytes;
  };
  struct Scratch {
    std::byte* of_sums;
    float* of_thresholds;  // of each sample; null where they do not learn
    Bytes bytes;
  };

  std::int64_t gates() const;
  GatedShape shape(std::int64_t steps) const;
  bool is_gru() const { return options_.cell == GatedCell::gru; }
  bool is_egru() const { return options_.cell == GatedCell::egru; }
  bool has_c() const { return options_.cell == GatedCell::lstm || is_egru(); }
  bool has_apart() const { return is_gru() || is_egru(); }  // r multiplies the last product
  Parameters parameters() const;
  Prepared prepared_at(std::byte* memory) const;
  Sums sums_at(std::byte* memory, float* gradient) const;
  State state_at(std::byte* memory) const;
  Adjoint adjoint_at(std::byte* memory) const;
  Tape tape_at(std::byte* memory) const;
  Scratch scratch_at(std::byte* memory) const;
  void add_inputs(const DeviceWork& work, const Prepared& own, std::int64_t rows, const void* x,
                  std::byte* sums) const;
  void round(std::byte* to, const float* from, void* stream) const;
  void add_gradients(const DeviceWork& work, const Prepared& own, const Reversed& given,
                     const Scratch& scratch, const std::byte* of_inputs) const;
  void add_thresholds(const DeviceWork& work, const Prepared& own, const float* of_thresholds,
                      float* gradient) const;

  GatedLayerOptions options_;
  DeviceWeights input_, recurrent_;
};

}  // namespace ebb
