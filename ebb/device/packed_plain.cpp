// SPDX-License-Identifier: Apache-2.0
#include "ebb/device/packed_plain.h"

#include "ebb/device/packed.h"

namespace ebb {

constexpr std::int64_t kWidth = 16;

template <class Number>
PanelWidths panel_widths() {
  return {.whole = kWidth, .step = kWidth};
}
template PanelWidths panel_widths<float>();
template PanelWidths panel_widths<double>();

template <class Number>
void packed_product(std::int64_t rows, std::int64_t n, std::int64_t k, const Number* a,
                    std::int64_t a_stride, const Number* packed, Number* c, std::int64_t c_stride) {
  plain_packed_product<Number, kWidth>(rows, n, k, a, a_stride, packed, c, c_stride);
}
template void packed_product(std::int64_t, std::int64_t, std::int64_t, const float*, std::int64_t,
                             const float*, float*, std::int64_t);
template void packed_product(std::int64_t, std::int64_t, std::int64_t, const double*, std::int64_t,
                             const double*, double*, std::int64_t);

}  // namespace ebb
