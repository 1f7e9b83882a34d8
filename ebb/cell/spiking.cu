// SPDX-License-Identifier: Apache-2.0
#include "ebb/cell/spiking.h"

#include <limits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "ebb/cell/spiking_spread.cuh"
#include "ebb/core/error.h"

namespace ebb {
namespace {

using gated::OfSpikes;
using gated::Spread;

template <class F>
auto with_number(GatedNumber number, const F& f) {
  if (number == GatedNumber::bf16) return f.template operator()<__nv_bfloat16>();
  if (number == GatedNumber::f16) return f.template operator()<__half>();
  if (number == GatedNumber::f32) return f.template operator()<gated::Exact>();
  return f.template operator()<float>();
}

Spread spread_of(const SpikingShape& shape) {
  return with_number(shape.number,
                     [&]<class T>() { return OfSpikes<T>::spread(shape, gated::current_gpu()); });
}

void check(const SpikingShape& shape) {
  gated::check_earlier();
  const std::string why = spiking_unfit(shape);
  if (!why.empty()) fail(ErrorCode::invalid_argument, "spiking cells: ", why);
}

}  // namespace

std::string spiking_unfit(const SpikingShape& shape) {
  const std::string missing = gated::gpu_unfit();
  if (!missing.empty()) return missing;
  constexpr std::int64_t most = std::numeric_limits<int>::max() / 16;
  for (const std::int64_t size : {shape.steps, shape.batch, shape.hidden}) {
    if (size < 1 || size > most)
      return "steps, batch and hidden must be 1 to " + std::to_string(most);
  }
  if (!shape.recurrent) return {};
  const std::int64_t each = units_together(shape.number);
  if (shape.hidden % each != 0) return "hidden must be a multiple of " + std::to_string(each);
  if (spread_of(shape).units == 0)
    return "the recurrent weights do not fit into the shared memory of the GPU";
  return {};
}

void spiking_forward(const SpikingShape& shape, const SpikingForward& given, void* stream) {
  check(shape);
  const gated::Host host = gated::host_of(stream);
  with_number(shape.number, [&]<class T>() {
    if (!shape.recurrent) return OfSpikes<T>::forward_apart(shape, given, host);
    OfSpikes<T>::forward(shape, spread_of(shape), given, host);
  });
}

void spiking_recall(const SpikingShape& shape, const SpikingRecall& given, void* stream) {
  check(shape);
  with_number(shape.number,
              [&]<class T>() { OfSpikes<T>::recall(shape, given, gated::host_of(stream)); });
}

void spiking_backward(const SpikingShape& shape, const SpikingBackward& given, void* stream) {
  check(shape);
  const gated::Host host = gated::host_of(stream);
  with_number(shape.number, [&]<class T>() {
    if (!shape.recurrent) return OfSpikes<T>::backward_apart(shape, given, host);
    OfSpikes<T>::backward(shape, spread_of(shape), given, host);
  });
}

}  // namespace ebb
