// SPDX-License-Identifier: Apache-2.0
// Chain files: any text is read or refused with an Error; what is read survives being written and
// read again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "ebb/core/error.h"
#include "ebb/plan/text.h"

// NOLINTNEXTLINE(readability-identifier-naming): the name libFuzzer calls
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const ebb::Chain chain = ebb::chain_from_json({reinterpret_cast<const char*>(data), size});
    const ebb::Chain again = ebb::chain_from_json(ebb::to_json(chain));
    if (again.steps() != chain.steps() || again.call() != chain.call()) std::abort();
    for (std::int64_t i = 0; i < (chain.is_uniform() ? 1 : chain.steps()); ++i) {
      if (again.at(i) != chain.at(i)) std::abort();
    }
  } catch (const ebb::Error&) {
  }
  return 0;
}
