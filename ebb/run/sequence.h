// SPDX-License-Identifier: Apache-2.0
// What a Step reads or writes at each step: an array over all steps, or a function called for each,
// so that nothing of the sequence's length need be in memory.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>

#include "ebb/core/bytes.h"
#include "ebb/core/error.h"

namespace ebb {

// Rows of `width` numbers. For inputs Number is const. Rows are asked for in any order and as often
// as steps run: a function must give the same numbers each time, in memory that stays until the
// next call.
template <class Number>
class Sequence {
 public:
  using Rows = std::function<std::span<Number>(std::int64_t step)>;

  Sequence() = default;
  // Row after row. Throws Error(invalid_argument) if `all` is no whole number of rows.
  Sequence(std::span<Number> all, std::size_t width) : all_(all), width_(width) {
    if (width == 0 || all.size() % width != 0) {
      fail(ErrorCode::invalid_argument, "Sequence: ", all.size(), " numbers are no rows of ",
           width);
    }
  }
  Sequence(std::size_t width, Rows rows) : width_(width), rows_(std::move(rows)) {}

  explicit operator bool() const { return width_ > 0; }
  std::size_t width() const { return width_; }
  // The caller's memory for it; 0 for a function's.
  Bytes bytes() const { return static_cast<Bytes>(all_.size_bytes()); }
  // Throws Error(invalid_argument) beyond the last row, or if the function gives a wrong width.
  std::span<Number> at(std::int64_t step) const {
    if (!rows_) {
      const auto row = static_cast<std::size_t>(step);
      const std::size_t rows = width_ == 0 ? 0 : all_.size() / width_;
      if (step < 0 || row >= rows) {
        fail(ErrorCode::invalid_argument, "Sequence: no row ", step, "; there are ", rows);
      }
      return all_.subspan(row * width_, width_);
    }
    const std::span<Number> row = rows_(step);
    if (row.size() != width_) {
      fail(ErrorCode::invalid_argument, "Sequence: row ", step, " has ", row.size(),
           " numbers; it must have ", width_);
    }
    return row;
  }

 private:
  std::span<Number> all_;
  std::size_t width_ = 0;
  Rows rows_;
};

}  // namespace ebb
