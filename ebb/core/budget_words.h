// SPDX-License-Identifier: Apache-2.0
// Budgets as people give them: bytes, or a share of what keeping everything takes; and refusals in
// the same unit.
#pragma once

#include <string>
#include <string_view>

#include "ebb/core/bytes.h"
#include "ebb/core/error.h"

namespace ebb {

// "5%"
bool is_share(std::string_view word);

// The bytes of "64MiB", of "5%" of `whole`, or kUnlimited for "unlimited". Throws
// Error(invalid_argument) that names the value as its caller does (`what`).
Bytes read_budget(std::string_view what, std::string_view word, Bytes whole);

// The least share of four digits that has at least that many bytes when it is read: "4.521%". `whole`
// is 1 or more.
std::string least_share(Bytes bytes, Bytes whole);

// A refusal of the budget `word` by Error(infeasible_budget) that also says, if it was a share, which
// one would do, or, if it was so small a number that a share was meant, how that is written.
Error in_unit_of(std::string_view word, Bytes whole, const Error& refusal);

}  // namespace ebb
