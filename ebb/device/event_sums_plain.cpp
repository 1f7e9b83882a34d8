// SPDX-License-Identifier: Apache-2.0
#include "ebb/device/event_sums_plain.h"

namespace ebb {

template <class Number>
void add_rows(std::int64_t count, const std::uint16_t* list, const Number* values,
              const Number* rows, Number* sums) {
  plain_add_rows(count, list, values, rows, sums);
}
template void add_rows(std::int64_t, const std::uint16_t*, const float*, const float*, float*);
template void add_rows(std::int64_t, const std::uint16_t*, const double*, const double*, double*);

template <class Number>
void add_to_rows(std::int64_t count, const std::uint16_t* list, const Number* values,
                 const Number* d, Number* rows) {
  plain_add_to_rows(count, list, values, d, rows);
}
template void add_to_rows(std::int64_t, const std::uint16_t*, const float*, const float*, float*);
template void add_to_rows(std::int64_t, const std::uint16_t*, const double*, const double*,
                          double*);

template <class Number>
void dot_rows(std::int64_t count, const std::uint16_t* list, const Number* rows, const Number* d,
              Number* results) {
  plain_dot_rows(count, list, rows, d, results);
}
template void dot_rows(std::int64_t, const std::uint16_t*, const float*, const float*, float*);
template void dot_rows(std::int64_t, const std::uint16_t*, const double*, const double*, double*);

}  // namespace ebb
