// SPDX-License-Identifier: Apache-2.0
// Strict reading of a user's words: numbers, seconds, sizes.
//
// Every reader throws Error(invalid_argument) that names the value as its caller does (`what`: an
// option, a keyword), the word and what is allowed.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/core/bytes.h"

namespace ebb {

// A whole number, also as "1e6".
std::int64_t read_count(std::string_view what, std::string_view word, std::int64_t least,
                        std::int64_t most);
// Whole numbers joined by commas, at least one.
std::vector<std::int64_t> read_counts(std::string_view what, std::string_view word,
                                      std::int64_t least, std::int64_t most);
// A finite number; nothing for any other word.
std::optional<double> finite_number(std::string_view word);
double read_number(std::string_view what, std::string_view word);
// Seconds from 0 to 1e15.
double read_seconds(std::string_view what, std::string_view word);
// A size as parse_bytes reads it.
Bytes read_size(std::string_view what, std::string_view word, Bytes least, Bytes most);

// `word` fit for a message: at most 60 characters, control characters replaced.
std::string shown(std::string_view word);

// The candidate a mistyped word most likely stands for, or "" when none is near.
std::string nearest(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace ebb
