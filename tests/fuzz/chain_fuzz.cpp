// SPDX-License-Identifier: Apache-2.0
// Chain files: any text is read or refused with an Error; what is read survives being written and
// read again.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "ebb/core/error.h"
#include "ebb/plan/text.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const ebb::Chain chain = ebb::chain_from_json({reinterpret_cast<const char*>(data), size});
    const ebb::Chain again = ebb::chain_from_json(ebb::to_json(chain));
    if (again.steps() != chain.steps() || again.call() != chain.call()) __builtin_trap();
    for (std::int64_t i = 0; i < (chain.is_uniform() ? 1 : chain.steps()); ++i) {
      if (again.at(i) != chain.at(i)) __builtin_trap();
    }
  } catch (const ebb::Error&) {
  }
  return 0;
}
