// SPDX-License-Identifier: Apache-2.0
// What the tests of the store share: a folder that goes away, items, and every kind of tier.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <functional>
#include <ostream>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "ebb/core/error.h"
#include "ebb/store/file.h"
#include "ebb/store/slow_tier.h"
#include "ebb/store/store.h"
#include "ebb/store/tier_kinds.h"
#include "tests/temporary_folder.h"

namespace ebb::test {

using Item = std::vector<std::byte>;

inline Item random_item(std::mt19937& random, Bytes bytes) {
  Item item(static_cast<std::size_t>(bytes));
  for (std::size_t i = 0; i < item.size(); i += sizeof(unsigned)) {
    const auto word = static_cast<unsigned>(random());
    std::memcpy(&item[i], &word, std::min(sizeof word, item.size() - i));
  }
  return item;
}

// The code of the error that the call throws; a call without one is a failure.
inline ErrorCode code_of(const std::function<void()>& call, std::string* text = nullptr) {
  try {
    call();
  } catch (const Error& error) {
    if (text != nullptr) *text = error.what();
    return error.code();
  }
  ADD_FAILURE() << "no error";
  return ErrorCode::cancelled;
}

// Makes some system calls go wrong while it lives.
class PlantedCalls {
 public:
  PlantedCalls() : before_(file_calls()) {}
  PlantedCalls(const PlantedCalls&) = delete;
  PlantedCalls& operator=(const PlantedCalls&) = delete;
  ~PlantedCalls() { file_calls() = before_; }
  FileCalls& operator*() const { return file_calls(); }
  FileCalls* operator->() const { return &file_calls(); }

 private:
  FileCalls before_;
};

struct Arrangement {
  std::string name;
  const TierKind* kind = nullptr;
  FileEngine engine = FileEngine::any;  // any: not a file
  bool direct = false;

  bool is_file() const { return engine != FileEngine::any; }
  bool missing() const { return engine == FileEngine::uring && !has_uring(); }
  SlowTier tier(const TemporaryFolder& folder, Bytes capacity) const {
    if (is_file()) {
      return file_tier(folder.path(), capacity, "disk", {.engine = engine, .direct = direct});
    }
    return make_tier(*kind, {.name = name, .value = folder.path(), .capacity = capacity}).tier;
  }
};

inline std::vector<Arrangement> files() {
  const TierKind* const file = find_tier_kind("file");
  return {{"ThreadsDirect", file, FileEngine::threads, true},
          {"ThreadsBuffered", file, FileEngine::threads, false},
          {"UringDirect", file, FileEngine::uring, true},
          {"UringBuffered", file, FileEngine::uring, false}};
}

// Files, and every other row of the table that keeps what it is given.
inline std::vector<Arrangement> every_arrangement() {
  std::vector<Arrangement> all = files();
  for (const TierKind& kind : tier_kinds()) {
    if (kind.keeps && kind.word != "file") all.push_back({std::string(kind.word), &kind});
  }
  return all;
}

inline std::string name_of(const ::testing::TestParamInfo<Arrangement>& info) {
  return info.param.name;
}
inline std::ostream& operator<<(std::ostream& out, const Arrangement& arrangement) {
  return out << arrangement.name;
}

// A test of one arrangement, skipped where the machine lacks it.
class EveryTier : public ::testing::TestWithParam<Arrangement> {
 protected:
  void SetUp() override {
    if (GetParam().missing()) GTEST_SKIP() << "io_uring is not in this build or not allowed here";
  }
  // A store of one tier.
  Store open(const TierNeeds& needs) {
    return {{GetParam().tier(folder_, needs.peak)}, {needs}, ledger_, {}};
  }
  const TemporaryFolder& folder() const { return folder_; }
  const Ledger& ledger() const { return ledger_; }

 private:
  TemporaryFolder folder_;
  Ledger ledger_;
};

}  // namespace ebb::test
