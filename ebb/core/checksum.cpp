// SPDX-License-Identifier: Apache-2.0
#include "ebb/core/checksum.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <sys/auxv.h>
#endif

namespace ebb {
namespace {

constexpr std::uint32_t kPolynomial = 0x82F63B78;  // Castagnoli's, bits reversed

// kTables[k][b]: the checksum of byte b followed by k zeros, so that eight bytes take one round.
constexpr auto kTables = [] {
  std::array<std::array<std::uint32_t, 256>, 8> tables{};
  for (std::uint32_t b = 0; b < 256; ++b) {
    std::uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    tables[0][b] = crc;
  }
  for (std::size_t k = 1; k < 8; ++k) {
    for (std::size_t b = 0; b < 256; ++b) {
      const std::uint32_t last = tables[k - 1][b];
      tables[k][b] = (last >> 8) ^ tables[0][last & 0xFF];
    }
  }
  return tables;
}();

std::uint64_t eight(const std::byte* p) {
  std::uint64_t word;
  std::memcpy(&word, p, sizeof word);
  return word;
}

// Three lanes at a time, since an instruction begins long before the one before it has ended.
constexpr std::size_t kLane = 4096;  // a power of 2

// kSkip[k][b]: what a checksum with b in its byte k becomes after kLane zeros. Zeros act on the bits
// of a checksum one by one; twice as many zeros are the same act done twice.
constexpr auto kSkip = [] {
  std::array<std::uint32_t, 32> zeros{};  // what each bit becomes
  for (std::size_t bit = 0; bit < 32; ++bit) {
    const std::uint32_t crc = std::uint32_t{1} << bit;
    zeros[bit] = (crc >> 8) ^ kTables[0][crc & 0xFF];
  }
  for (std::size_t length = 1; length < kLane; length *= 2) {
    const auto half = zeros;
    for (std::uint32_t& crc : zeros) {
      std::uint32_t twice = 0;
      for (std::size_t bit = 0; bit < 32; ++bit) twice ^= (crc >> bit & 1) != 0 ? half[bit] : 0;
      crc = twice;
    }
  }
  std::array<std::array<std::uint32_t, 256>, 4> skip{};
  for (std::size_t bit = 0; bit < 32; ++bit) {
    for (std::size_t b = 0; b < 256; ++b) {
      if ((b >> (bit % 8) & 1) != 0) skip[bit / 8][b] ^= zeros[bit];
    }
  }
  return skip;
}();

constexpr std::uint32_t skip_lane(std::uint32_t crc) {
  return kSkip[0][crc & 0xFF] ^ kSkip[1][crc >> 8 & 0xFF] ^ kSkip[2][crc >> 16 & 0xFF] ^
         kSkip[3][crc >> 24];
}

// Compilers and CPUs name the target and the instructions differently.
#if defined(__x86_64__)
#define EBB_CRC_TARGET __attribute__((target("sse4.2")))
#define EBB_CRC_EIGHT(crc, word) static_cast<std::uint32_t>(_mm_crc32_u64(crc, word))
#define EBB_CRC_ONE _mm_crc32_u8
bool has_instruction() { return __builtin_cpu_supports("sse4.2") != 0; }
#elif defined(__aarch64__)
#if defined(__clang__)
#define EBB_CRC_TARGET __attribute__((target("crc")))
#define EBB_CRC_EIGHT __builtin_arm_crc32cd
#define EBB_CRC_ONE __builtin_arm_crc32cb
#else
#define EBB_CRC_TARGET __attribute__((target("+crc")))
#define EBB_CRC_EIGHT __crc32cd
#define EBB_CRC_ONE __crc32cb
#endif
bool has_instruction() { return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }
#endif

#if defined(EBB_CRC_TARGET)
EBB_CRC_TARGET std::uint32_t by_instruction(const std::byte* p, std::size_t n, std::uint32_t crc) {
  for (; n >= 3 * kLane; p += 3 * kLane, n -= 3 * kLane) {
    std::uint32_t second = 0, third = 0;
    for (std::size_t i = 0; i < kLane; i += 8) {
      crc = EBB_CRC_EIGHT(crc, eight(p + i));
      second = EBB_CRC_EIGHT(second, eight(p + kLane + i));
      third = EBB_CRC_EIGHT(third, eight(p + 2 * kLane + i));
    }
    crc = skip_lane(skip_lane(crc) ^ second) ^ third;
  }
  for (; n >= 8; p += 8, n -= 8) crc = EBB_CRC_EIGHT(crc, eight(p));
  for (; n > 0; ++p, --n) crc = EBB_CRC_ONE(crc, static_cast<unsigned char>(*p));
  return crc;
}
#else
bool has_instruction() { return false; }
std::uint32_t by_instruction(const std::byte*, std::size_t, std::uint32_t crc) { return crc; }
#endif

}  // namespace

std::uint32_t crc32c_plain(std::span<const std::byte> bytes, std::uint32_t before) {
  std::uint32_t crc = ~before;
  const std::byte* p = bytes.data();
  std::size_t n = bytes.size();
  for (; n >= 8; p += 8, n -= 8) {
    const std::uint64_t word = eight(p) ^ crc;
    crc = 0;
    for (std::size_t k = 0; k < 8; ++k) crc ^= kTables[7 - k][(word >> (8 * k)) & 0xFF];
  }
  for (; n > 0; ++p, --n) {
    crc = (crc >> 8) ^ kTables[0][(crc ^ static_cast<std::uint32_t>(*p)) & 0xFF];
  }
  return ~crc;
}

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before) {
  static const bool fast = has_instruction();
  if (!fast) return crc32c_plain(bytes, before);
  return ~by_instruction(bytes.data(), bytes.size(), ~before);
}

}  // namespace ebb
