// SPDX-License-Identifier: Apache-2.0
#include "ebb/store/tier_kinds.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "ebb/core/error.h"
#include "ebb/device/buffer.h"
#include "ebb/store/file.h"

namespace ebb {
namespace {

// The value of a key, which is one of a few words; left out: the first.
std::size_t one_of(const TierWords& words, std::string_view key,
                   std::span<const std::string_view> allowed, std::string_view text) {
  const auto given = words.keys.find(key);
  if (given == words.keys.end()) return 0;
  const auto found = std::ranges::find(allowed, given->second);
  if (found == allowed.end()) {
    fail(ErrorCode::invalid_argument, "tier ", words.name, ": ", key, " is '", given->second,
         "'; it must be ", text);
  }
  return static_cast<std::size_t>(found - allowed.begin());
}

Bytes free_memory() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream text(line);
    std::string key;
    Bytes kib = 0;
    if (text >> key >> kib && key == "MemAvailable:") return scale_bytes(kib, 1024);
  }
  return kUnlimited;
}

RealTier make_memory(const TierWords& words) {
  return {.tier = memory_tier(words.capacity.value_or(free_memory()), words.name)};
}

std::string how_memory(const RealTier&) { return "host memory, copied by threads of its own"; }

Bytes free_on_disk(const std::string& directory) {
  std::error_code failed;
  const auto space = std::filesystem::space(directory, failed);
  // What is wrong with the directory is found when the tier is opened.
  if (failed || space.available > static_cast<std::uintmax_t>(kUnlimited)) return kUnlimited;
  return static_cast<Bytes>(space.available);
}

constexpr TierKey kFileKeys[] = {{"engine", "uring|threads", "how it is read and written"},
                                 {"direct", "no", "through the page cache"}};

RealTier make_file(const TierWords& words) {
  constexpr std::string_view engines[] = {"any", "uring", "threads"}, directs[] = {"yes", "no"};
  if (words.value.empty()) {
    fail(ErrorCode::invalid_argument, "tier ", words.name,
         ": file is ''; name a directory that exists");
  }
  RealTier real;
  real.directory = words.value;
  real.options.engine =
      static_cast<FileEngine>(one_of(words, "engine", engines, "uring, threads or any"));
  real.options.direct = one_of(words, "direct", directs, "yes or no") == 0;
  const Bytes room = words.capacity.value_or(free_on_disk(words.value));
  real.tier = file_tier(words.value, room, words.name, real.options);
  return real;
}

bool uses_uring(const RealTier& tier) {
  return tier.options.engine != FileEngine::threads && has_uring();
}

// Whether the file system really takes transfers past the page cache.
bool is_direct(const RealTier& tier) {
  if (!tier.options.direct) return false;
  UnnamedFile file(tier.directory, true);
  file.reserve(kPage);
  alignas(kPage) std::byte page[2 * kPage];
  const int aligned = file.call(0, page, kPage).descriptor;
  const int crooked = file.call(0, page + 1, kPage).descriptor;
  return aligned != crooked;
}

std::string how_file(const RealTier& tier) {
  return "a file in " + tier.directory + "; " + (uses_uring(tier) ? "io_uring" : "threads") +
         (is_direct(tier) ? ", direct" : ", through the page cache");
}

Json facts_of_file(const RealTier& tier) {
  return {{"directory", tier.directory},
          {"engine", uses_uring(tier) ? "uring" : "threads"},
          {"direct", is_direct(tier)}};
}

RealTier make_null(const TierWords& words) {
  RealTier real{.tier = null_tier(words.name)};
  real.tier.capacity = words.capacity.value_or(kUnlimited);
  return real;
}

std::string how_null(const RealTier&) { return "keeps nothing, costs nothing"; }

Json no_facts(const RealTier&) { return Json::object(); }

constexpr bool kIsMemory = true, kIsElsewhere = false;
constexpr bool kKeeps = true, kForgets = false;

constexpr std::array kKinds{
    TierKind{"memory",
             "",
             "host memory beside a smaller fast budget",
             {},
             kIsMemory,
             kKeeps,
             make_memory,
             how_memory,
             no_facts},
    TierKind{"file", "DIRECTORY", "a file without a name, gone with the run", kFileKeys,
             kIsElsewhere, kKeeps, make_file, how_file, facts_of_file},
    TierKind{"null",
             "",
             "free storage that keeps nothing",
             {},
             kIsElsewhere,
             kForgets,
             make_null,
             how_null,
             no_facts},
};

}  // namespace

std::string TierKind::usage() const {
  std::string text(word);
  if (!value.empty()) text.append("=").append(value);
  return text;
}

std::span<const TierKind> tier_kinds() { return kKinds; }

const TierKind* find_tier_kind(std::string_view word) {
  const auto found = std::ranges::find(kKinds, word, &TierKind::word);
  return found == kKinds.end() ? nullptr : &*found;
}

RealTier make_tier(const TierKind& kind, const TierWords& words) {
  RealTier real = kind.make(words);
  real.kind = &kind;
  return real;
}

std::string tier_usages(std::string_view last_link, std::string_view before) {
  std::string text;
  for (std::size_t k = 0; k < kKinds.size(); ++k) {
    if (k > 0) text += k + 1 < kKinds.size() ? ", " : " " + std::string(last_link) + " ";
    text.append(before).append(kKinds[k].usage());
  }
  return text;
}

}  // namespace ebb
