// SPDX-License-Identifier: Apache-2.0
// The program run inside the test: words in, exit code and both outputs out.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "ebb/cli/cli.h"

namespace ebb::test {

struct Outcome {
  int code;
  std::string out, err;
};

inline Outcome run(const std::vector<std::string>& args) {
  std::ostringstream out, err;
  const int code = run_cli(args, out, err);
  return {code, out.str(), err.str()};
}

// `ebb name words`, all of them separated by spaces.
inline Outcome command(const std::string& name, const std::string& words) {
  std::vector<std::string> args;
  std::istringstream text(name + " " + words);
  for (std::string word; text >> word;) args.push_back(word);
  return run(args);
}
inline Outcome plan(const std::string& words) { return command("plan", words); }

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// A file that lives as long as the object.
class TemporaryFile {
 public:
  TemporaryFile(const std::string& name, const std::string& text) {
    // mkdtemp puts letters of its own for six of these.
    const std::string pattern = "ebb_test_" + std::string(6, 'X');
    std::string folder = (std::filesystem::temp_directory_path() / pattern).string();
    if (mkdtemp(folder.data()) == nullptr) throw std::runtime_error("no temporary folder");
    folder_ = folder;
    path_ = folder_ / name;
    std::ofstream(path_, std::ios::binary) << text;
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path folder_, path_;
};

}  // namespace ebb::test
