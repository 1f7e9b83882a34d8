// SPDX-License-Identifier: Apache-2.0
// A file of the source tree as text compiled into the library, by cmake/embed_files.cmake.
#pragma once

#include <string_view>

namespace ebb {

struct EmbeddedFile {
  std::string_view name;
  std::string_view text;
};

}  // namespace ebb
