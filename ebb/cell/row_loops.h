// SPDX-License-Identifier: Apache-2.0
// The loops of rows.h as templates over a cell's mathematics; rows_float.cpp and rows_double.cpp
// compile them for every row of the table, each for one type of numbers.
#pragma once

#include <algorithm>
#include <array>

#include "ebb/cell/cell_table.h"
#include "ebb/cell/rows.h"
#include "ebb/device/vectors.h"

namespace ebb {
namespace {

// Loops are compiled for several instruction sets where the oldest lacks wide vectors: all that a
// call of `run` leads to is compiled into it.
struct Oldest {
  template <class Call>
  __attribute__((flatten)) static void run(const Call& call) {
    call();
  }
};
#if defined(__x86_64__)
struct Avx2 {
  template <class Call>
  __attribute__((target("avx2,fma"), flatten)) static void run(const Call& call) {
    call();
  }
};
struct Avx512 {
  template <class Call>
  __attribute__((target("avx2,fma,avx512f,avx512vl,avx512dq,avx512bw"), flatten)) static void run(
      const Call& call) {
    call();
  }
};
#endif

constexpr int kMost = kMostOfUnit;
constexpr std::int64_t kTogether = 64;  // units whose slopes are found before they are used

template <int count, class Number, class From>
void load(Number* to, const Block<From>& from, std::int64_t row, std::int64_t unit) {
  for (int f = 0; f < count; ++f) to[f] = from.data[row * from.row + f * from.field + unit];
}

template <int count, class Number>
void store(const Number* from, const Block<Number>& to, std::int64_t row, std::int64_t unit) {
  for (int f = 0; f < count; ++f) to.data[row * to.row + f * to.field + unit] = from[f];
}

// Units of a loop that becomes vector code as a whole, whatever the instruction set: compilers leave
// what is over to a loop of single units.
constexpr std::int64_t kPiece = 16;

// Calls each(i) for [from,to).
template <class Each>
void for_units(std::int64_t from, std::int64_t to, const Each& each) {
  std::int64_t i = from;
  for (; i + kPiece <= to; i += kPiece) {
#pragma GCC ivdep
    for (std::int64_t k = 0; k < kPiece; ++k) each(i + k);
  }
#pragma GCC ivdep
  for (; i < to; ++i) each(i);
}

// Blocks come by value: bytes written to them could else be the loop's own bounds, and no loop that
// writes bytes would become vector code.
template <class Math, bool save, class Number>
void forward_row(const ForwardBlock<Number> block, std::int64_t b) {
  for_units(0, block.units, [block, b](std::int64_t i) {
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
    if constexpr (save) store<Math::kSaved>(saved, block.saved, b, i);
    if constexpr (Math::kSpikes) {
      block.spikes.data[b * block.spikes.row + i] = static_cast<std::uint8_t>(unit.spike);
    }
  });
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

// Calls for a row's fields in a block of units: rows lie so far apart that processors do not see them
// coming.
template <int count, class Number>
void call_for(const Block<Number>& block, std::int64_t row, std::int64_t units) {
  constexpr auto line = static_cast<std::int64_t>(64 / sizeof(Number));
  for (int f = 0; f < count; ++f) {
    const auto* const own = block.data + row * block.row + f * block.field;
    for (std::int64_t i = 0; i < units; i += line) __builtin_prefetch(own + i);
  }
}
constexpr std::int64_t kAhead = 4;  // rows

template <class Math, class Number>
void forward_block(const ForwardBlock<Number>& block) {
  for (std::int64_t b = 0; b < block.rows; ++b) {
    if (b + kAhead < block.rows) {
      call_for<Math::kFields>(block.before, b + kAhead, block.units);
      call_for<Math::kFields>(block.after, b + kAhead, block.units);
      if (block.saved.data != nullptr) {
        call_for<Math::kSaved>(block.saved, b + kAhead, block.units);
      }
    }
    if (block.idle != nullptr && block.idle[b] != 0) {
      idle_row<Math>(block, b);
    } else if (Math::kSaved > 0 && block.saved.data != nullptr) {
      forward_row<Math, true>(block, b);
    } else {
      forward_row<Math, false>(block, b);
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

// Distances to the threshold become slopes, in a loop of its own: each cell's loops would else be
// compiled once for each surrogate, which takes minutes.
template <class Set, class Number>
[[gnu::noinline]] void find_slopes(Surrogate kind, Number sharpness, std::int64_t count,
                                   Number* values) {
  Set::run([=] {
    with_surrogate(kind, [=]<Surrogate known>() {
      for (std::int64_t i = 0; i < count; ++i) values[i] = psi<known>(values[i], sharpness);
    });
  });
}

// Slopes of at most kTogether units of a sample, from unit `from` on.
template <class Set, class Math, class Some, class Number>
void slopes(const Some& block, std::int64_t b, std::int64_t from, std::int64_t count,
            Number* values) {
  for (std::int64_t i = 0; i < count; ++i) {
    Number after[kMost], saved[kMost], parameters[kMost];
    load<Math::kFields>(after, block.after, b, from + i);
    load<Math::kSaved>(saved, block.saved, b, from + i);
    load<Math::kParameters>(parameters, block.parameters, 0, from + i);
    values[i] = Math::distance(saved, after, parameters);
  }
  find_slopes<Set>(block.surrogate, block.constants.sharpness, count, values);
}

// Units [from,to) of a sample; `slopes` are theirs.
template <class Math, class Number>
void backward_units(const BackwardBlock<Number> block, std::int64_t b, std::int64_t from,
                    std::int64_t to, const Number* slopes) {
  for_units(from, to, [block, b, from, slopes](std::int64_t i) {
    Number before[kMost], after[kMost], saved[kMost], parameters[kMost], fields[kMost];
    Number sums[kMost], of_parameters[kMost];
    load<Math::kFields>(before, block.before, b, i);
    load<Math::kFields>(after, block.after, b, i);
    load<Math::kSaved>(saved, block.saved, b, i);
    load<Math::kParameters>(parameters, block.parameters, 0, i);
    load<Math::kParameters>(of_parameters, block.of_parameters, 0, i);
    load<Math::kFields>(fields, block.adjoint, b, i);
    Number* const output = block.output.data + b * block.output.row + i;
    UnitBackward<Number> unit{before,     after,   saved,  0,    0,
                              parameters, *output, fields, sums, of_parameters};
    if constexpr (Math::kEvents) unit.slope = slopes[i - from];
    if constexpr (Math::kSpikes) {
      unit.spike_before =
          static_cast<Number>(block.spikes_before.data[b * block.spikes_before.row + i]);
    }
    Math::backward(unit, block.constants);
    store<Math::kFields>(fields, block.adjoint, b, i);
    *output = unit.output;
    store<Math::kSums>(sums, block.sums, b, i);
    store<Math::kParameters>(of_parameters, block.of_parameters, 0, i);
  });
}

template <class Set, class Math, class Number>
void backward_row(const BackwardBlock<Number>& block, std::int64_t b) {
  if constexpr (!Math::kEvents) {
    backward_units<Math, Number>(block, b, 0, block.units, nullptr);
  } else {
    for (std::int64_t from = 0; from < block.units; from += kTogether) {
      const std::int64_t count = std::min(kTogether, block.units - from);
      Number values[kTogether];
      slopes<Set, Math>(block, b, from, count, values);
      if (Math::kSpikes && block.listed.data != nullptr) {
        const std::uint8_t* const listed = block.listed.data + b * block.listed.row + from;
        for (std::int64_t i = 0; i < count; ++i) values[i] *= static_cast<Number>(listed[i]);
      }
      backward_units<Math, Number>(block, b, from, from + count, values);
    }
  }
}

template <class Set, class Math, class Number>
void backward_block(const BackwardBlock<Number>& block) {
  for (std::int64_t b = 0; b < block.rows; ++b) {
    if (block.idle != nullptr && block.idle[b] != 0) {
      const Number zeros[kMost] = {};
      for (std::int64_t i = 0; i < block.units; ++i) store<Math::kSums>(zeros, block.sums, b, i);
    } else {
      backward_row<Set, Math>(block, b);
    }
  }
}

template <class Math, class Number>
void support_units(const SupportBlock<Number> block, std::int64_t b, std::int64_t from,
                   std::int64_t to, const Number* slopes) {
  for_units(from, to, [block, b, from, slopes](std::int64_t i) {
    Number after[kMost], saved[kMost], parameters[kMost];
    load<Math::kFields>(after, block.after, b, i);
    load<Math::kSaved>(saved, block.saved, b, i);
    load<Math::kParameters>(parameters, block.parameters, 0, i);
    const Number membrane = Math::membrane(saved, after);
    // In numbers: vector code has no short cuts.
    const Number fires = step(Math::distance(saved, after, parameters));
    const Number slope = slopes[i - from] != Number{0} ? Number{1} : Number{0};
    const Number heard = membrane >= block.constants.least ? slope : Number{0};
    const Number passes = !Math::kSpikes && heard == Number{0} ? fires : heard;
    block.support.data[b * block.support.row + i] =
        static_cast<std::uint8_t>(passes * Number{kPasses} + fires * Number{kFires});
  });
}

template <class Set, class Math, class Number>
void support_block(const SupportBlock<Number>& block) {
  for (std::int64_t b = 0; b < block.rows; ++b) {
    for (std::int64_t from = 0; from < block.units; from += kTogether) {
      const std::int64_t count = std::min(kTogether, block.units - from);
      Number values[kTogether];
      slopes<Set, Math>(block, b, from, count, values);
      support_units<Math, Number>(block, b, from, from + count, values);
    }
  }
}

template <class Set, class Math, class Number>
constexpr CellLoops<Number> loops() {
  CellLoops<Number> result;
  result.forward = [](const ForwardBlock<Number>& block) {
    Set::run([&block] { forward_block<Math>(block); });
  };
  result.backward = [](const BackwardBlock<Number>& block) {
    Set::run([&block] { backward_block<Set, Math>(block); });
  };
  if constexpr (Math::kEvents) {
    result.support = [](const SupportBlock<Number>& block) {
      Set::run([&block] { support_block<Set, Math>(block); });
    };
  }
  return result;
}

template <class Set, class Number>
CellLoops<Number> loops_for(std::size_t cell) {
  static constexpr std::array table = with_cells([]<class... Math>(const CellEntry<Math>&...) {
    return std::array{loops<Set, Math, Number>()...};
  });
  return table[cell];
}

template <class Number>
CellLoops<Number> loops_at(std::size_t cell) {
#if defined(__x86_64__)
  if (vector_bytes() >= 64) return loops_for<Avx512, Number>(cell);
  if (vector_bytes() >= 32) return loops_for<Avx2, Number>(cell);
#endif
  return loops_for<Oldest, Number>(cell);
}

}  // namespace
}  // namespace ebb
