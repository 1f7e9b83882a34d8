// SPDX-License-Identifier: Apache-2.0
// The loops of rows.h as templates over a cell's mathematics; rows_float.cpp and rows_double.cpp
// compile them for every row of the table, each for one type of numbers.
#pragma once

#include <array>

#include "ebb/cell/cell_table.h"
#include "ebb/cell/rows.h"

// Compiled for several instruction sets where the oldest lacks wide vectors; the loader takes the
// best. Sanitizers are not ready when it does.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define EBB_CLONES \
  __attribute__((target_clones("default", "arch=haswell", "arch=skylake-avx512"), flatten))
#else
#define EBB_CLONES __attribute__((flatten))
#endif

namespace ebb {
namespace {

constexpr int kMost = kMostOfUnit;

template <int kCount, class Number, class From>
void load(Number* to, const Block<From>& from, std::int64_t row, std::int64_t unit) {
  for (int f = 0; f < kCount; ++f) to[f] = from.data[row * from.row + f * from.field + unit];
}

template <int kCount, class Number>
void store(const Number* from, const Block<Number>& to, std::int64_t row, std::int64_t unit) {
  for (int f = 0; f < kCount; ++f) to.data[row * to.row + f * to.field + unit] = from[f];
}

// Blocks come by value: bytes written to them could else be the loop's own bounds, and no loop that
// writes bytes would become vector code.
template <class Math, bool kSave, class Number>
void forward_row(const ForwardBlock<Number> block, std::int64_t b) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < block.units; ++i) {
    Number sums[kMost], before[kMost], parameters[kMost], after[kMost], saved[kMost];
    load<Math::kSums>(sums, block.sums, b, i);
    load<Math::kFields>(before, block.before, b, i);
    load<Math::kParameters>(parameters, block.parameters, 0, i);
    UnitForward<Number> unit{sums, before, 0, parameters, after, saved, 0};
    if constexpr (Math::kSpikes) {
      unit.spike_before =
          static_cast<Number>(block.spikes_before.data[b * block.spikes_before.row + i]);
    }
    Math::forward(unit, block.constants);
    store<Math::kFields>(after, block.after, b, i);
    if constexpr (kSave) store<Math::kSaved>(saved, block.saved, b, i);
    if constexpr (Math::kSpikes) {
      block.spikes.data[b * block.spikes.row + i] = static_cast<std::uint8_t>(unit.spike);
    }
  }
}

// The sample has ended.
template <class Math, class Number>
void idle_row(const ForwardBlock<Number> block, std::int64_t b) {
  for (std::int64_t i = 0; i < block.units; ++i) {
    Number fields[kMost];
    load<Math::kFields>(fields, block.before, b, i);
    store<Math::kFields>(fields, block.after, b, i);
    if constexpr (Math::kSaved > 0) {
      const Number zeros[kMost] = {};
      if (block.saved.data != nullptr) store<Math::kSaved>(zeros, block.saved, b, i);
    }
    if constexpr (Math::kSpikes) {
      block.spikes.data[b * block.spikes.row + i] =
          block.spikes_before.data[b * block.spikes_before.row + i];
    }
  }
}

template <class Math, class Number>
EBB_CLONES void forward_block(const ForwardBlock<Number>& block) {
  for (std::int64_t b = 0; b < block.rows; ++b) {
    if (block.idle != nullptr && block.idle[b] != 0) {
      idle_row<Math>(block, b);
    } else if (Math::kSaved > 0 && block.saved.data != nullptr) {
      forward_row<Math, true>(block, b);
    } else {
      forward_row<Math, false>(block, b);
    }
  }
}

template <class Math, Surrogate kKind, bool kListed, class Number>
void backward_row(const BackwardBlock<Number> block, std::int64_t b) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < block.units; ++i) {
    Number before[kMost], after[kMost], saved[kMost], parameters[kMost], fields[kMost];
    Number sums[kMost], of_parameters[kMost];
    load<Math::kFields>(before, block.before, b, i);
    load<Math::kFields>(after, block.after, b, i);
    load<Math::kSaved>(saved, block.saved, b, i);
    load<Math::kParameters>(parameters, block.parameters, 0, i);
    load<Math::kParameters>(of_parameters, block.of_parameters, 0, i);
    load<Math::kFields>(fields, block.adjoint, b, i);
    Number* const output = block.output.data + b * block.output.row + i;
    UnitBackward<Number> unit{before,     after,   saved,  0,    1,
                              parameters, *output, fields, sums, of_parameters};
    if constexpr (Math::kSpikes) {
      unit.spike_before =
          static_cast<Number>(block.spikes_before.data[b * block.spikes_before.row + i]);
      if constexpr (kListed) {
        unit.listed = static_cast<Number>(block.listed.data[b * block.listed.row + i]);
      }
    }
    Math::template backward<kKind>(unit, block.constants);
    store<Math::kFields>(fields, block.adjoint, b, i);
    *output = unit.output;
    store<Math::kSums>(sums, block.sums, b, i);
    store<Math::kParameters>(of_parameters, block.of_parameters, 0, i);
  }
}

template <class Math, Surrogate kKind, class Number>
EBB_CLONES void backward_block(const BackwardBlock<Number>& block) {
  for (std::int64_t b = 0; b < block.rows; ++b) {
    if (block.idle != nullptr && block.idle[b] != 0) {
      const Number zeros[kMost] = {};
      for (std::int64_t i = 0; i < block.units; ++i) store<Math::kSums>(zeros, block.sums, b, i);
    } else if (Math::kSpikes && block.listed.data != nullptr) {
      backward_row<Math, kKind, true>(block, b);
    } else {
      backward_row<Math, kKind, false>(block, b);
    }
  }
}

template <class Math, Surrogate kKind, class Number>
EBB_CLONES void support_block(const SupportBlock<Number> block) {
  for (std::int64_t b = 0; b < block.rows; ++b) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < block.units; ++i) {
      Number after[kMost], saved[kMost], parameters[kMost];
      load<Math::kFields>(after, block.after, b, i);
      load<Math::kSaved>(saved, block.saved, b, i);
      load<Math::kParameters>(parameters, block.parameters, 0, i);
      const Number x = Math::distance(saved, after, parameters);
      const Number membrane = Math::membrane(saved, after);
      // In numbers: vector code has no short cuts.
      const Number fires = step(x);
      const Number slope =
          psi<kKind>(x, block.constants.sharpness) != Number{0} ? Number{1} : Number{0};
      const Number heard = membrane >= block.constants.least ? slope : Number{0};
      const Number passes = !Math::kSpikes && heard == Number{0} ? fires : heard;
      block.support.data[b * block.support.row + i] =
          static_cast<std::uint8_t>(passes * Number{kPasses} + fires * Number{kFires});
    }
  }
}

// Calls `call` with the surrogate as a constant.
template <class Call>
void with_surrogate(Surrogate kind, Call call) {
  switch (kind) {
    case Surrogate::fast_sigmoid:
      return call.template operator()<Surrogate::fast_sigmoid>();
    case Surrogate::superspike:
      return call.template operator()<Surrogate::superspike>();
    case Surrogate::arctan:
      return call.template operator()<Surrogate::arctan>();
    case Surrogate::triangular:
      return call.template operator()<Surrogate::triangular>();
    case Surrogate::boxcar:
      return call.template operator()<Surrogate::boxcar>();
    case Surrogate::multi_gaussian:
      return call.template operator()<Surrogate::multi_gaussian>();
  }
}

template <class Math, class Number>
constexpr CellLoops<Number> loops() {
  CellLoops<Number> result;
  result.forward = forward_block<Math, Number>;
  if constexpr (Math::kEvents) {
    result.backward = [](const BackwardBlock<Number>& block) {
      with_surrogate(block.surrogate,
                     [&block]<Surrogate kKind>() { backward_block<Math, kKind, Number>(block); });
    };
    result.support = [](const SupportBlock<Number>& block) {
      with_surrogate(block.surrogate,
                     [&block]<Surrogate kKind>() { support_block<Math, kKind, Number>(block); });
    };
  } else {
    result.backward = backward_block<Math, Surrogate::fast_sigmoid, Number>;
  }
  return result;
}

template <class Number>
CellLoops<Number> loops_at(std::size_t cell) {
  static constexpr std::array kLoops = with_cells([]<class... Math>(const CellEntry<Math>&...) {
    return std::array{loops<Math, Number>()...};
  });
  return kLoops[cell];
}

}  // namespace
}  // namespace ebb
