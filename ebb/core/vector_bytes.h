// SPDX-License-Identifier: Apache-2.0
// What a vector holds, for those who say what lies in memory.
#pragma once

#include <vector>

#include "ebb/core/bytes.h"

namespace ebb {

template <class Element>
Bytes vector_bytes(const std::vector<Element>& elements) {
  return static_cast<Bytes>(elements.capacity() * sizeof(Element));
}

}  // namespace ebb
