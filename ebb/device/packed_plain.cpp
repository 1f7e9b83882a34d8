// SPDX-License-Identifier: Apache-2.0
#include "ebb/device/packed_plain.h"

namespace ebb {

constexpr std::int64_t kWidth = 16;

template <class Number>
PanelWidths panel_widths() {
  return {.whole = kWidth, .step = kWidth, .cut = kWidth};
}
template PanelWidths panel_widths<float>();
template PanelWidths panel_widths<double>();

template <class Number>
void packed_product(std::int64_t rows, const Columns& columns, std::int64_t k,
                    const Factors<Number>& a, const Number* packed, const Results<Number>& c) {
  plain_packed_product<Number, kWidth>(rows, columns, k, a, packed, c);
}
template void packed_product(std::int64_t, const Columns&, std::int64_t, const Factors<float>&,
                             const float*, const Results<float>&);
template void packed_product(std::int64_t, const Columns&, std::int64_t, const Factors<double>&,
                             const double*, const Results<double>&);

}  // namespace ebb
