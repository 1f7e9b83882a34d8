// SPDX-License-Identifier: Apache-2.0
// Files of data, read whole. Private.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string_view>
#include <vector>

#include "ebb/core/bytes.h"

namespace ebb {

// Larger files are taken for a mistake.
inline constexpr Bytes kMostFileBytes = Bytes{64} << 30;

// Throws Error(io) for what is missing or no file, with `origin`, which says where to get it. What is no
// file, such as a terminal, may never end.
void check_is_file(const std::filesystem::path& path, std::string_view origin);

// Throws what check_is_file throws, Error(io) for a file that cannot be read; Error(invalid_argument) for one of more than `most` bytes.
std::vector<std::byte> read_file(const std::filesystem::path& path, std::string_view origin,
                                 Bytes most = kMostFileBytes);

// The files of a folder whose names end so, in the order of their names. Throws Error(io), with
// `origin`, if there is no such folder or it cannot be read.
std::vector<std::filesystem::path> files_in(const std::filesystem::path& folder,
                                            std::string_view ending, std::string_view origin);

// As std::filesystem::exists; what cannot be looked at is not there.
bool is_there(const std::filesystem::path& path);

}  // namespace ebb
