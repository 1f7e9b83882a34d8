// SPDX-License-Identifier: Apache-2.0
// One gated layer over a chunk of time steps on a CUDA device: the kernels of gated.h with the large products around them. Where a
// state, a tape or scratch lies is the caller's business; what lies where in them is the layer's.
//
// [K,B,N] are arrays over time steps, samples and units in the number's type, K at most `chunk`. Calls return at once; the work is on
// the stream of GatedWork.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ebb/cell/gated.h"
#include "ebb/core/carver.h"
#include "ebb/device/cuda_products.h"

namespace ebb {

// Arrays lie at multiples of 256 bytes wherever they are: what cuBLAS chooses by their addresses is then the same in every plan.
inline std::byte* take_array(Carver& carver, Bytes bytes) {
  constexpr Bytes each = 256;
  return carver.take<std::byte>((bytes + each - 1) / each * each);
}
inline float* take_floats(Carver& carver, std::int64_t count) {
  return reinterpret_cast<float*>(take_array(carver, count * static_cast<Bytes>(sizeof(float))));
}

struct GatedLayerOptions {
  GatedCell cell = GatedCell::lstm;
  GatedNumber number = GatedNumber::bf16;
  std::int64_t chunk = 0, batch = 0, inputs = 0, hidden = 0;
  bool bias = true;
};

// What all layers run with.
struct GatedWork {
  CudaProducts* products = nullptr;
  void* stream = nullptr;
};

class GatedLayer {
 public:
  explicit GatedLayer(const GatedLayerOptions& options) : options_(options) {}

  const GatedLayerOptions& options() const { return options_; }
  std::int64_t gates() const;
  int fields() const { return options_.cell == GatedCell::lstm ? 2 : 1; }
  CudaNumber number() const;
  Bytes number_bytes() const { return bytes_of(number()); }
  GatedShape shape(std::int64_t steps) const;

  // Floats, as cells on the CPU have them: weight_ih [G*H,I], weight_hh [G*H,H] and, if there are any, bias_ih and bias_hh [G*H].
  std::int64_t parameter_size() const;

  Bytes prepared_bytes() const;  // parameters as products and kernels read them
  Bytes state_bytes() const;
  Bytes adjoint_bytes() const;  // gradient of a state
  Bytes tape_bytes() const;     // without the inputs; the states before and after are in it
  Bytes forward_bytes() const;  // scratch of advance
  Bytes reverse_bytes() const;  // scratch of reverse

  void prepare(const float* parameters, std::byte* prepared, void* stream) const;

  // States as the caller has them: floats [B,F,H], of each sample h and then, of an lstm, c; null: zeros.
  void load(const float* given, std::byte* state, void* stream) const;
  void store(const std::byte* state, float* to, void* stream) const;
  // The same for gradients of states.
  void load_adjoint(const float* given, std::byte* adjoint, void* stream) const;
  void store_adjoint(const std::byte* adjoint, float* to, void* stream) const;

  // From the state before to the one after; fills the outputs [K,B,H].
  void advance(const GatedWork& work, const std::byte* prepared, std::int64_t steps, const void* x,
               const std::byte* before, std::byte* after, void* outputs, std::byte* scratch) const;
  // The same, leaving a tape. Returns the outputs, a part of it.
  const void* record(const GatedWork& work, const std::byte* prepared, std::int64_t steps,
                     const void* x, const std::byte* before, std::byte* tape) const;
  const void* outputs_of_tape(const std::byte* tape) const;
  // The state after a chunk that was recorded.
  void state_of_tape(const std::byte* tape, std::int64_t steps, std::byte* state,
                     void* stream) const;

  struct Reversed {
    std::int64_t steps = 0;
    const void* x = nullptr;
    std::byte* tape = nullptr;               // used up
    const void* outputs_gradient = nullptr;  // [K,B,H]; may be null
    const std::byte* of_after = nullptr;     // adjoints
    std::byte* of_before = nullptr;
    void* of_x = nullptr;       // [K,B,I]; may be null
    float* gradient = nullptr;  // like the parameters; added to, but for bias_ih of all but a gru
  };
  void reverse(const GatedWork& work, const std::byte* prepared, const Reversed& given,
               std::byte* scratch) const;
  // After the last reverse: what it has left out of the gradient.
  void finish(float* gradient, void* stream) const;

 private:
  struct Parameters {
    std::int64_t weight_ih, weight_hh, bias_ih, bias_hh, size;
  };
  struct Prepared {
    std::byte *w_ih, *w_hh, *bias, *gate_bias, *ones;
    Bytes bytes;
  };
  struct State {
    std::byte* h;  // null of a gru
    float* field;  // null of an rnn
    Bytes bytes;
  };
  struct Adjoint {
    float *h, *field;  // field null but of an lstm
    Bytes bytes;
  };
  struct Tape {
    std::byte *gates, *hs, *products;
    float *field_before, *fields, *field_after;
    Bytes bytes;
  };

  bool is_gru() const { return options_.cell == GatedCell::gru; }
  bool is_lstm() const { return options_.cell == GatedCell::lstm; }
  std::int64_t units() const { return options_.batch * options_.hidden; }
  Bytes row_bytes() const { return units() * number_bytes(); }
  Parameters parameters() const;
  Prepared prepared_at(std::byte* memory) const;
  State state_at(std::byte* memory) const;
  Adjoint adjoint_at(std::byte* memory) const;
  Tape tape_at(std::byte* memory) const;
  CudaProduct product_of_numbers() const;
  void add_inputs(const GatedWork& work, const Prepared& own, std::int64_t rows, const void* x,
                  std::byte* sums) const;
  void round(std::byte* to, const float* from, void* stream) const;
  void add_gradients(const GatedWork& work, const Prepared& own, const Reversed& given,
                     const std::byte* of_sums, const std::byte* of_inputs) const;

  GatedLayerOptions options_;
};

}  // namespace ebb
