// SPDX-License-Identifier: Apache-2.0
// Arrays on a GPU as Python gives them: by address and the name of their numbers.
#pragma once

#include <cstdint>
#include <string>

#include "ebb/cell/gated.h"
#include "ebb/core/error.h"

namespace ebb::python {

using Address = std::uintptr_t;

template <class Number = void>
Number* on_gpu(Address address) {
  return reinterpret_cast<Number*>(address);  // NOLINT(performance-no-int-to-ptr)
}

inline GatedNumber gated_number_of(const std::string& name) {
  if (name == "bfloat16") return GatedNumber::bf16;
  if (name == "float16") return GatedNumber::f16;
  if (name == "tf32") return GatedNumber::tf32;
  if (name == "float32") return GatedNumber::f32;
  fail(ErrorCode::invalid_argument, "dtype is '", name,
       "'; it must be bfloat16, float16, tf32 or float32");
}

}  // namespace ebb::python
