// SPDX-License-Identifier: Apache-2.0
// Where the rows of a sequence lie in a caller's array: time or batch first, part of wider rows,
// packed, read from either end. A network takes rows [B,W] for each time step.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "ebb/core/at.h"
#include "ebb/run/sequence.h"

namespace ebb::python {

// An array as Python gives it. Distances are in numbers. Packed rows lie one `row` after another:
// `time` means nothing there.
struct Strided {
  std::uintptr_t address = 0;
  std::int64_t time = 0, row = 0;
  explicit operator bool() const { return address != 0; }
};

// Which row of an array a sample has at a time step.
class RowOrder {
 public:
  RowOrder() = default;
  // batch_sizes: of a packed sequence, how many samples each time step has; empty: not packed.
  // Throws Error(invalid_argument) unless they fall from `batch` or fewer to 1 or more.
  RowOrder(std::int64_t time_steps, std::int64_t batch, std::vector<std::int64_t> batch_sizes,
           bool reverse)
      : time_steps_(time_steps),
        batch_(batch),
        sizes_(std::move(batch_sizes)),
        reverse_(reverse),
        lengths_(at(batch), time_steps) {
    if (sizes_.empty()) return;
    if (static_cast<std::int64_t>(sizes_.size()) != time_steps || sizes_.front() != batch ||
        sizes_.back() < 1 || !std::ranges::is_sorted(sizes_, std::greater{})) {
      fail(ErrorCode::invalid_argument, "batch sizes of a packed sequence: there must be ",
           time_steps, ", falling from ", batch, " to 1 or more");
    }
    std::int64_t rows = 0;
    for (std::int64_t t = 0; t < time_steps; ++t) {
      starts_.push_back(rows);
      rows += sizes_[at(t)];
    }
    for (std::int64_t b = 0; b < batch; ++b) {
      lengths_[at(b)] = std::ranges::count_if(sizes_, [b](std::int64_t size) { return size > b; });
    }
  }

  std::int64_t batch() const { return batch_; }
  bool is_packed() const { return !sizes_.empty(); }
  const std::vector<std::int64_t>& lengths() const { return lengths_; }
  // Samples that last beyond time step t: the first ones.
  std::int64_t samples(std::int64_t t) const { return is_packed() ? sizes_[at(t)] : batch_; }
  std::int64_t place(const Strided& array, std::int64_t t, std::int64_t b) const {
    const std::int64_t time = reverse_ ? lengths_[at(b)] - 1 - t : t;
    return is_packed() ? (starts_[at(time)] + b) * array.row : time * array.time + b * array.row;
  }
  // Whether the network can use the array as it lies.
  bool is_plain(const Strided& array, std::int64_t width) const {
    return !is_packed() && !reverse_ && (batch_ == 1 || array.row == width) &&
           (time_steps_ == 1 || array.time == batch_ * width);
  }
  std::int64_t time_steps() const { return time_steps_; }

 private:
  std::int64_t time_steps_ = 0, batch_ = 0;
  std::vector<std::int64_t> sizes_, starts_;
  bool reverse_ = false;
  std::vector<std::int64_t> lengths_;
};

// Rows read from an array. Where a sample is over its row is 0.
template <class Number>
class RowReader {
 public:
  // The order must outlive what is read.
  Sequence<const Number> over(const RowOrder& order, const Strided& array, std::int64_t width) {
    const auto* const data = reinterpret_cast<const Number*>(array.address);
    const auto row = at(order.batch() * width);
    if (order.is_plain(array, width)) return {std::span(data, at(order.time_steps()) * row), row};
    row_.resize(row);
    return {row, [this, &order, array, width, data](std::int64_t t) {
              const std::int64_t samples = order.samples(t);
              for (std::int64_t b = 0; b < samples; ++b) {
                std::copy_n(data + order.place(array, t, b), width, row_.data() + b * width);
              }
              std::fill(row_.begin() + samples * width, row_.end(), Number{0});
              return std::span<const Number>(row_);
            }};
  }

 private:
  std::vector<Number> row_;
};

// Rows written to an array. A row reaches it when the next is asked for: the last by flush.
template <class Number>
class RowWriter {
 public:
  Sequence<Number> over(const RowOrder& order, const Strided& array, std::int64_t width) {
    auto* const data = reinterpret_cast<Number*>(array.address);
    const auto row = at(order.batch() * width);
    pending_ = kNone;
    if (order.is_plain(array, width)) return {std::span(data, at(order.time_steps()) * row), row};
    row_.resize(row);
    order_ = &order;
    array_ = array;
    width_ = width;
    return {row, [this](std::int64_t t) {
              flush();
              pending_ = t;
              return std::span<Number>(row_);
            }};
  }
  void flush() {
    if (pending_ == kNone) return;
    auto* const data = reinterpret_cast<Number*>(array_.address);
    for (std::int64_t b = 0; b < order_->samples(pending_); ++b) {
      std::copy_n(row_.data() + b * width_, width_, data + order_->place(array_, pending_, b));
    }
    pending_ = kNone;
  }

 private:
  static constexpr std::int64_t kNone = -1;
  std::vector<Number> row_;
  const RowOrder* order_ = nullptr;
  Strided array_;
  std::int64_t width_ = 0, pending_ = kNone;
};

}  // namespace ebb::python
