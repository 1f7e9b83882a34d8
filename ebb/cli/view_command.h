// SPDX-License-Identifier: Apache-2.0
// `ebb view`: plans, reports, traces and training runs as pages.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "ebb/cli/command.h"

namespace CLI {
class App;
}

namespace ebb {

Command declare_view(CLI::App& app);

// The page is in the file, whole, when it returns, or the file is as it was. `option` names the path in errors: "--view".
void write_page(std::string_view option, const std::filesystem::path& path,
                const std::string& page);

}  // namespace ebb
