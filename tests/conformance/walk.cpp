// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/walk.h"

#include <cstdlib>
#include <filesystem>
#include <stdexcept>

namespace ebb::test {

TemporaryFolder::TemporaryFolder()
    : path_((std::filesystem::temp_directory_path() / "ebb-test-XXXXXX").string()) {
  if (::mkdtemp(path_.data()) == nullptr) throw std::runtime_error("no temporary folder");
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

bool TemporaryFolder::is_empty() const { return std::filesystem::is_empty(path_); }

}  // namespace ebb::test
