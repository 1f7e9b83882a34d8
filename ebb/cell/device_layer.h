// SPDX-License-Identifier: Apache-2.0
// One recurrent layer over a chunk of time steps on a CUDA device: kernels with the large products around them. Where a state, a tape or
// scratch lies is the caller's business; what lies where in them is the layer's.
//
// [K,B,N] are arrays over time steps, samples and units in the number's type, but for what a readout gives out; K is at most `chunk`. Calls return at once; the work is on
// the stream of DeviceWork.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "ebb/cell/device_arrays.h"
#include "ebb/cell/device_weights.h"
#include "ebb/cell/gated.h"
#include "ebb/device/cuda_products.h"

namespace ebb {

struct DeviceSizes {
  GatedNumber number = GatedNumber::bf16;
  std::int64_t chunk = 0, batch = 0, inputs = 0, hidden = 0;
  std::shared_ptr<const Pattern> input_pattern = {}, recurrent_pattern = {};  // null: all weights
};

// What all layers run with.
struct DeviceWork {
  CudaProducts* products = nullptr;
  void* stream = nullptr;
};

class DeviceLayer {
 public:
  explicit DeviceLayer(const DeviceSizes& sizes) : sizes_(sizes) {}
  DeviceLayer(const DeviceLayer&) = delete;
  DeviceLayer& operator=(const DeviceLayer&) = delete;
  virtual ~DeviceLayer() = default;

  const DeviceSizes& sizes() const { return sizes_; }
  CudaNumber number() const {
    if (sizes_.number == GatedNumber::bf16) return CudaNumber::bf16;
    return sizes_.number == GatedNumber::f16 ? CudaNumber::f16 : CudaNumber::f32;
  }
  Bytes number_bytes() const { return bytes_of(number()); }
  // Of each number that it gives out: those of a readout are floats.
  virtual Bytes output_bytes() const { return number_bytes(); }

  // Why it cannot run on the GPU that is current; empty: it can.
  virtual std::string unfit() const = 0;
  // Of each unit in a state as the caller has it.
  virtual std::int64_t fields() const = 0;
  // Floats, as cells on the CPU have them.
  virtual std::int64_t parameter_size() const = 0;
  // The same if no weight were missing: what is multiplied.
  virtual std::int64_t multiplied_size() const = 0;
  // Whether units read each other: each time step waits for all of the one before.
  virtual bool is_recurrent() const { return true; }

  virtual Bytes prepared_bytes() const = 0;  // parameters as products and kernels read them
  virtual Bytes sums_bytes() const = 0;      // whole gradients of sparse weights
  virtual Bytes state_bytes() const = 0;
  virtual Bytes adjoint_bytes() const = 0;  // gradient of a state
  virtual Bytes tape_bytes() const = 0;     // without the inputs; the state before is in it
  virtual Bytes forward_bytes() const = 0;  // scratch of advance
  virtual Bytes record_bytes() const = 0;   // scratch of record
  virtual Bytes reverse_bytes() const = 0;  // scratch of reverse

  // Once, before the first prepare: what is the same whatever the parameters are. The layer must be there until the work is done.
  virtual void begin(std::byte* prepared, void* stream) const = 0;
  virtual void prepare(const float* parameters, std::byte* prepared, void* stream) const = 0;

  // States as the caller has them: floats [B,F,H], field after field of each sample; null: zeros.
  virtual void load(const float* given, std::byte* state, void* stream) const = 0;
  virtual void store(const std::byte* state, float* to, void* stream) const = 0;
  // The same for gradients of states.
  virtual void load_adjoint(const float* given, std::byte* adjoint, void* stream) const = 0;
  virtual void store_adjoint(const std::byte* adjoint, float* to, void* stream) const = 0;

  // From the state before to the one after; fills the outputs [K,B,H].
  virtual void advance(const DeviceWork& work, const std::byte* prepared, std::int64_t steps,
                       const void* x, const std::byte* before, std::byte* after, void* outputs,
                       std::byte* scratch) const = 0;
  // The same, leaving a tape. Returns the outputs, a part of it.
  virtual const void* record(const DeviceWork& work, const std::byte* prepared, std::int64_t steps,
                             const void* x, const std::byte* before, std::byte* tape,
                             std::byte* scratch) const = 0;
  virtual const void* outputs_of_tape(const std::byte* tape) const = 0;
  // The state after a chunk that was recorded.
  virtual void state_of_tape(const std::byte* tape, std::int64_t steps, std::byte* state,
                             void* stream) const = 0;

  struct Reversed {
    std::int64_t steps = 0;
    const void* x = nullptr;
    std::byte* tape = nullptr;               // used up
    const void* outputs_gradient = nullptr;  // [K,B,H]; may be null
    const std::byte* of_after = nullptr;     // adjoints
    std::byte* of_before = nullptr;
    void* of_x = nullptr;       // [K,B,I]; may be null
    float* gradient = nullptr;  // like the parameters; added to, finish makes it whole
    std::byte* sums = nullptr;  // sums_bytes(), zeros to begin with; added to
  };
  virtual void reverse(const DeviceWork& work, const std::byte* prepared, const Reversed& given,
                       std::byte* scratch) const = 0;
  // After the last reverse.
  virtual void finish(const std::byte* prepared, const std::byte* sums, float* gradient,
                      void* stream) const = 0;

 protected:
  std::int64_t units() const { return sizes_.batch * sizes_.hidden; }
  Bytes row_bytes() const { return units() * number_bytes(); }
  // Of numbers, with sums in float32.
  CudaProduct product_of_numbers() const {
    CudaProduct product;
    product.number = number();
    product.tf32 = sizes_.number == GatedNumber::tf32;
    return product;
  }
  // Of floats that keep all their bits.
  static CudaProduct product_of_floats() {
    CudaProduct product;
    product.tf32 = false;
    return product;
  }
  // Adds `count` rows to a row `to`: as a product with ones, whose order of additions is fixed as well.
  struct Rows {
    const void *ones = nullptr, *rows = nullptr;
    std::int64_t count = 0, columns = 0;
  };
  static void add_rows(const DeviceWork& work, CudaProduct how, const Rows& given, float* to) {
    how.a = given.ones;
    how.b = given.rows;
    how.rows = 1;
    how.columns = given.columns;
    how.inner = given.count;
    how.sums = to;
    how.adds = true;
    work.products->multiply(how);
  }

 private:
  DeviceSizes sizes_;
};

}  // namespace ebb
