// SPDX-License-Identifier: Apache-2.0
// `ebb view`: plans, experiments, reports, traces and training runs as pages.
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

// Throws for a path where no page can be written, as far as that can be known without trying. `option` names it: "--view".
void check_page_path(std::string_view option, const std::filesystem::path& path);

// The page is in the file, whole, when it returns, or the file is as it was.
void write_page(std::string_view option, const std::filesystem::path& path,
                const std::string& page);

}  // namespace ebb
