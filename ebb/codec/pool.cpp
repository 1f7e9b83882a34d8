// SPDX-License-Identifier: Apache-2.0
// Barley & Fröning 2024: what is kept is the mean of each block of neighbours. The field is seen as
// [outer, inner]: blocks run over `outer`, whose neighbours lie `inner` elements apart. The last
// block may be shorter and uses its true count, where theirs drops it and shifts the rest.
#include <algorithm>
#include <type_traits>

#include "ebb/codec/element_codec.h"
#include "ebb/codec/rows.h"

namespace ebb {
namespace {

template <class T>
class Pool : public ElementCodec<T> {
 public:
  Pool(std::string_view name, std::int64_t block, std::int64_t inner)
      : ElementCodec<T>(name),
        block_(static_cast<std::size_t>(block)),
        inner_(static_cast<std::size_t>(inner)) {}

 private:
  std::size_t encoded_size(std::size_t count) const override {
    if (count % inner_ != 0) {
      fail(ErrorCode::invalid_argument, "codec pool: a field of ", count,
           " elements has no rows of ", inner_);
    }
    return (count / inner_ + block_ - 1) / block_ * inner_ * sizeof(T);
  }

  // The sum of a block runs from its first row to its last, so that every machine gives its bits.
  void encode_elements(std::span<const T> in, std::span<std::byte> to) const override {
    T* mean = elements<T>(to).data();
    for_blocks(in, [&](const T* rows, auto count) {
      if (inner_ == 1) {
        T sum = rows[0];
        for (std::size_t r = 1; r < count; ++r) sum += rows[r];
        *mean = sum / static_cast<T>(count);
      } else {
        std::copy_n(rows, inner_, mean);
        for (std::size_t r = 1; r < count; ++r) {
          for (std::size_t i = 0; i < inner_; ++i) mean[i] += rows[r * inner_ + i];
        }
        for (std::size_t i = 0; i < inner_; ++i) mean[i] /= static_cast<T>(count);
      }
      mean += inner_;
    });
  }

  void decode_elements(std::span<const std::byte> from, std::span<T> out) const override {
    const T* mean = elements<T>(from).data();
    for_blocks(out, [&](T* rows, auto count) {
      if (inner_ == 1) {
        std::fill_n(rows, count, *mean);
      } else {
        for (std::size_t r = 0; r < count; ++r) std::copy_n(mean, inner_, rows + r * inner_);
      }
      mean += inner_;
    });
  }

  // Calls visit(first row, number of rows) for each block. The paper's blocks of neighbours that
  // touch, 2 and 4, come as constants, so that the loops over them unroll.
  template <class U, class Visit>
  void for_blocks(std::span<U> field, const Visit& visit) const {
    if (inner_ == 1 && block_ == 2) {
      visit_blocks(field, std::integral_constant<std::size_t, 2>{}, visit);
    } else if (inner_ == 1 && block_ == 4) {
      visit_blocks(field, std::integral_constant<std::size_t, 4>{}, visit);
    } else {
      visit_blocks(field, block_, visit);
    }
  }
  template <class U, class Count, class Visit>
  void visit_blocks(std::span<U> field, Count block, const Visit& visit) const {
    const std::size_t rows = field.size() / inner_;
    const std::size_t whole = rows / block * block;
    for (std::size_t first = 0; first < whole; first += block) {
      visit(field.data() + first * inner_, block);
    }
    if (whole < rows) visit(field.data() + whole * inner_, rows - whole);
  }

  std::size_t block_, inner_;
};

}  // namespace

std::unique_ptr<Codec> make_pool(Element element, std::string_view parameter) {
  const std::size_t cross = parameter.find('x');
  const std::int64_t block =
      parameter.empty() ? 2 : codec_number("pool", parameter.substr(0, cross), 1, 1 << 20);
  const std::int64_t inner = cross == std::string_view::npos
                                 ? 1
                                 : codec_number("pool", parameter.substr(cross + 1), 1, 1 << 30);
  return for_element<Pool>("pool", element, block, inner);
}

}  // namespace ebb
