// SPDX-License-Identifier: Apache-2.0
#include "ebb/compress/small_indices.h"

#include <algorithm>
#include <atomic>

#include "ebb/core/error.h"

namespace ebb {
namespace {

constexpr std::int64_t kGrain = 4096;  // even, so that no two threads write one byte

void check_bits(int bits) {
  if (bits != 4 && bits != 8) {
    fail(ErrorCode::invalid_argument, "small indices: ", bits, " bits each; it must be 4 or 8");
  }
}

// By way of bytes: narrowing and joining are each a loop that compilers make vector code of.
constexpr std::int64_t kBytes = 512;
static_assert(kGrain % kBytes == 0);

// Gives all bits that are set in some index.
template <class Index>
std::uint64_t narrow(const Index* indices, std::int64_t count, std::uint8_t* bytes) {
  std::uint64_t seen = 0;
  for (std::int64_t i = 0; i < count; ++i) seen |= static_cast<std::uint64_t>(indices[i]);
  for (std::int64_t i = 0; i < count; ++i) bytes[i] = static_cast<std::uint8_t>(indices[i]);
  return seen;
}

template <class Index>
std::uint64_t pack_halves(const Index* indices, std::int64_t count, std::uint8_t* packed) {
  std::uint8_t bytes[kBytes + 1];
  const std::uint64_t seen = narrow(indices, count, bytes);
  bytes[count] = 0;  // beside a last one that is alone
  for (std::int64_t i = 0; i < (count + 1) / 2; ++i) {
    packed[i] = static_cast<std::uint8_t>(bytes[2 * i] | bytes[2 * i + 1] << 4);
  }
  return seen;
}

template <class Index>
void unpack_halves(const std::uint8_t* packed, std::int64_t count, Index* indices) {
  std::uint8_t bytes[kBytes];
  for (std::int64_t i = 0; i < (count + 1) / 2; ++i) {
    const std::uint8_t both = packed[i];
    bytes[2 * i] = both & 15;
    bytes[2 * i + 1] = static_cast<std::uint8_t>(both >> 4);
  }
  for (std::int64_t i = 0; i < count; ++i) indices[i] = bytes[i];
}

template <class Index>
void refuse(const Index* indices, std::int64_t count, int bits) {
  const auto* const found = std::find_if(indices, indices + count, [bits](Index index) {
    return static_cast<std::uint64_t>(index) >> bits != 0;
  });
  fail(ErrorCode::invalid_argument, "small indices: element ", found - indices, " is ",
       static_cast<std::int64_t>(*found), "; in ", bits, " bits it must be 0 to ", (1 << bits) - 1);
}

}  // namespace

std::int64_t small_bytes(std::int64_t count, int bits) {
  check_bits(bits);
  return bits == 4 ? (count + 1) / 2 : count;
}

template <class Index>
void pack_small(Workers& workers, std::int64_t count, const Index* indices, int bits,
                std::uint8_t* packed) {
  check_bits(bits);
  std::atomic<std::uint64_t> all = 0;
  workers.split(count, kGrain, [&](std::int64_t from, std::int64_t to) {
    std::uint64_t seen = 0;
    for (std::int64_t i = from; i < to; i += kBytes) {
      const std::int64_t here = std::min(kBytes, to - i);
      seen |= bits == 8 ? narrow(indices + i, here, packed + i)
                        : pack_halves(indices + i, here, packed + i / 2);
    }
    all.fetch_or(seen, std::memory_order_relaxed);
  });
  if (all >> bits != 0) refuse(indices, count, bits);
}

template <class Index>
void unpack_small(Workers& workers, std::int64_t count, const std::uint8_t* packed, int bits,
                  Index* indices) {
  check_bits(bits);
  workers.split(count, kGrain, [&](std::int64_t from, std::int64_t to) {
    if (bits == 8) {
      for (std::int64_t i = from; i < to; ++i) indices[i] = packed[i];
      return;
    }
    for (std::int64_t i = from; i < to; i += kBytes) {
      unpack_halves(packed + i / 2, std::min(kBytes, to - i), indices + i);
    }
  });
}

template void pack_small(Workers&, std::int64_t, const std::int64_t*, int, std::uint8_t*);
template void pack_small(Workers&, std::int64_t, const std::uint8_t*, int, std::uint8_t*);
template void unpack_small(Workers&, std::int64_t, const std::uint8_t*, int, std::int64_t*);
template void unpack_small(Workers&, std::int64_t, const std::uint8_t*, int, std::uint8_t*);

}  // namespace ebb
