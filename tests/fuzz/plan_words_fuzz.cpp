// SPDX-License-Identifier: Apache-2.0
// All words of `ebb plan`, one a line: whatever they are, the program ends with one of its exit
// codes, explains itself exactly when it fails, and lets no exception through.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "ebb/cli/cli.h"

namespace {

// Planning time grows with these; reading them is what is tested here.
constexpr std::int64_t kMostSteps = 60;
constexpr std::int64_t kMostSlots = 1000;

// A word that is a valid number beyond `most` is cut to it; all others stay as they are.
std::string cut(const std::string& word, std::int64_t most) {
  char* end = nullptr;
  const double number = std::strtod(word.c_str(), &end);
  return !word.empty() && *end == '\0' && number > static_cast<double>(most) && number <= 1e12
             ? std::to_string(most)
             : word;
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream lines(text);
  for (std::string word; std::getline(lines, word) && words.size() < 40;) words.push_back(word);
  return words;
}

// Files are the business of the other targets, and some, such as terminals, never end.
bool names_a_file(const std::vector<std::string>& words) {
  static const std::set<std::string> presets = {"laptop", "ipu-mk2", "ipu-mk2-tile", "h200-node"};
  for (std::size_t i = 0; i < words.size(); ++i) {
    for (const std::string option : {"--chain", "--platform"}) {
      if (words[i].starts_with(option + "=") &&
          !presets.contains(words[i].substr(option.size() + 1)))
        return true;
      if (words[i] == option && i + 1 < words.size() && !presets.contains(words[i + 1]))
        return true;
    }
  }
  return false;
}

void shorten(std::vector<std::string>& words) {
  const std::array<std::pair<std::string, std::int64_t>, 2> limits = {
      {{"--steps", kMostSteps}, {"--slots", kMostSlots}}};
  for (std::size_t i = 0; i < words.size(); ++i) {
    for (const auto& [option, most] : limits) {
      if (words[i] == option && i + 1 < words.size()) words[i + 1] = cut(words[i + 1], most);
      if (words[i].starts_with(option + "="))
        words[i] = option + "=" + cut(words[i].substr(option.size() + 1), most);
    }
  }
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): the name libFuzzer calls
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<std::string> words = words_of({reinterpret_cast<const char*>(data), size});
  if (names_a_file(words)) return 0;
  shorten(words);
  words.insert(words.begin(), "plan");
  std::ostringstream out, err;
  const int code = ebb::run_cli(words, out, err);
  if (code != ebb::kDone && code != ebb::kBadUsage && code != ebb::kDoesNotFit) std::abort();
  // Of no steps there are no actions, so that a done answer may be empty.
  const bool done = code == ebb::kDone;
  if (err.str().empty() != done || (!done && !out.str().empty())) std::abort();
  return 0;
}
