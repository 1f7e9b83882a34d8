// SPDX-License-Identifier: Apache-2.0
// A cell's mathematics over a block of units of all samples: the loops are written once, here, and
// compiled for each cell.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ebb/cell/unit.h"

namespace ebb {

// Numbers of a block: of unit u, sample b and field f at data[b * row + f * field + u].
template <class Number>
struct Block {
  Number* data = nullptr;
  std::int64_t row = 0, field = 0;
};

// Bytes of a block, without fields.
template <class Byte>
struct ByteBlock {
  Byte* data = nullptr;
  std::int64_t row = 0;
};

template <class Number>
struct ForwardBlock {
  std::int64_t rows = 0, units = 0;
  const std::uint8_t* idle = nullptr;            // [rows], 1: the sample has ended, its state stays
  Block<const Number> sums, before, parameters;  // parameters have no rows
  Block<Number> after, saved;                    // saved.data null: not wanted
  ByteBlock<const std::uint8_t> spikes_before;
  ByteBlock<std::uint8_t> spikes;
  Constants<Number> constants;
};

template <class Number>
struct BackwardBlock {
  std::int64_t rows = 0, units = 0;
  const std::uint8_t* idle = nullptr;
  Surrogate surrogate = Surrogate::fast_sigmoid;
  Block<const Number> before, after, saved, parameters;
  ByteBlock<const std::uint8_t> spikes_before, listed;  // listed.data null: all are
  Block<Number> output;         // its gradient, without fields; adjoint's field 0 where it is one
  Block<Number> adjoint;        // gradients of the fields
  Block<Number> sums;           // may be where `saved` is
  Block<Number> of_parameters;  // no rows; added to
  Constants<Number> constants;
};

// Bits of `support`.
inline constexpr int kPasses = 1;  // the gradient of the unit's output can be other than 0
inline constexpr int kFires = 2;   // it is above its threshold

// What of a unit is heard and passes gradients, from what backward will see.
template <class Number>
struct SupportBlock {
  std::int64_t rows = 0, units = 0;
  Surrogate surrogate = Surrogate::fast_sigmoid;
  Block<const Number> after, saved, parameters;
  ByteBlock<std::uint8_t> support;
  Constants<Number> constants;
};

template <class Number>
struct CellLoops {
  void (*forward)(const ForwardBlock<Number>&) = nullptr;
  void (*backward)(const BackwardBlock<Number>&) = nullptr;
  void (*support)(const SupportBlock<Number>&) = nullptr;  // cells with events
};

// Of a row of kCells (cell_table.h).
template <class Number>
CellLoops<Number> loops_of(std::size_t cell);
template <>
CellLoops<float> loops_of(std::size_t cell);
template <>
CellLoops<double> loops_of(std::size_t cell);

}  // namespace ebb
