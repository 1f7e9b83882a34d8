// SPDX-License-Identifier: Apache-2.0
#include "ebb/device/event_sums_plain.h"

namespace ebb {

template <class Number>
void add_weights(const EventList<Number>& events, const Number* weights, Number* sums,
                 std::int64_t stride) {
  plain_add_weights(events, weights, sums, stride);
}
template void add_weights(const EventList<float>&, const float*, float*, std::int64_t);
template void add_weights(const EventList<double>&, const double*, double*, std::int64_t);

template <class Number>
void add_to_weights(const EventList<Number>& events, const Number* d, Number* weights) {
  plain_add_to_weights(events, d, weights);
}
template void add_to_weights(const EventList<float>&, const float*, float*);
template void add_to_weights(const EventList<double>&, const double*, double*);

template <class Number>
void dot_rows(std::int64_t count, const std::uint16_t* list, const Number* rows, const Number* d,
              Number* results) {
  plain_dot_rows(count, list, rows, d, results);
}
template void dot_rows(std::int64_t, const std::uint16_t*, const float*, const float*, float*);
template void dot_rows(std::int64_t, const std::uint16_t*, const double*, const double*, double*);

template <class Number>
void add_sparse_product(std::int64_t count, const SparseRows<Number>& rows, std::int64_t width,
                        const Number* x, Number* sums) {
  plain_add_sparse_product(count, rows, width, x, sums);
}
template void add_sparse_product(std::int64_t, const SparseRows<float>&, std::int64_t, const float*,
                                 float*);
template void add_sparse_product(std::int64_t, const SparseRows<double>&, std::int64_t,
                                 const double*, double*);

}  // namespace ebb
