// SPDX-License-Identifier: Apache-2.0
// Whether numbers too small for full precision count as 0, on the thread that asks. A silent
// neuron's membrane decays into them, and arithmetic on them is slow.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace ebb {

// They do (or do not) while this lives.
template <bool flush>
class SmallNumbers {
 public:
  SmallNumbers() : before_(read()) { write(flush ? before_ | kBits : before_ & ~kBits); }
  SmallNumbers(const SmallNumbers&) = delete;
  SmallNumbers& operator=(const SmallNumbers&) = delete;
  ~SmallNumbers() { write(before_); }

 private:
#if defined(__x86_64__)
  using Word = std::uint32_t;
  static constexpr Word kBits = 0x8040;  // results and operands
  static Word read() { return _mm_getcsr(); }
  static void write(Word word) { _mm_setcsr(word); }
#elif defined(__aarch64__)
  using Word = std::uint64_t;
  static constexpr Word kBits = Word{1} << 24;
  static Word read() {
    Word word = 0;
    asm volatile("mrs %0, fpcr" : "=r"(word));
    return word;
  }
  static void write(Word word) { asm volatile("msr fpcr, %0" : : "r"(word)); }
#else
  using Word = int;
  static constexpr Word kBits = 0;
  static Word read() { return 0; }
  static void write(Word) {}
#endif
  Word before_;
};

using FlushToZero = SmallNumbers<true>;
using KeepSmallNumbers = SmallNumbers<false>;  // what must give the same bits as another library

}  // namespace ebb
