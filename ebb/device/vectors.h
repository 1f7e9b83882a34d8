// SPDX-License-Identifier: Apache-2.0
// Which of the machine's vector instruction sets loops use: the best one, unless a test takes another.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ebb {

// Bytes of a vector in use. On x86-64: 32 or more only where there are AVX2 and FMA, 64 or more only
// where there are AVX-512's F, VL, DQ and BW.
std::int64_t vector_bytes();

// The names of those that can be used here, best first.
std::vector<std::string> vector_sets();
// From now on `set`, one of vector_sets(). Sizes and results depend on it: not while anything runs, and
// what was made before stays with what it was made for, so it cannot be used.
void use_vector_set(const std::string& set);

}  // namespace ebb
