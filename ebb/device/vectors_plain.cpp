// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>

#include "ebb/device/vectors.h"

namespace ebb {
namespace {

std::vector<std::int64_t> widths() {
  std::vector<std::int64_t> bytes;
#if defined(__x86_64__)
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw")) {
    bytes.push_back(64);
  }
  if (has_avx2) bytes.push_back(32);
#endif
  bytes.push_back(16);
  return bytes;
}

std::atomic<std::int64_t>& in_use() {
  static std::atomic<std::int64_t> bytes = widths().front();
  return bytes;
}

std::string name_of(std::int64_t bytes) { return "plain" + std::to_string(bytes); }

}  // namespace

std::int64_t vector_bytes() { return in_use(); }

std::vector<std::string> vector_sets() {
  std::vector<std::string> names;
  for (const std::int64_t bytes : widths()) names.push_back(name_of(bytes));
  return names;
}

void use_vector_set(const std::string& set) {
  for (const std::int64_t bytes : widths()) {
    if (set == name_of(bytes)) in_use() = bytes;
  }
}

}  // namespace ebb
