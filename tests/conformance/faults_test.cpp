// SPDX-License-Identifier: Apache-2.0
// Faults of tiers and of system calls, drawn at random: a run gives the right gradients or a clear
// error, never wrong ones, and works again afterwards. EBB_SEED=n draws others.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <random>
#include <thread>

#include "ebb/core/error.h"
#include "ebb/plan/strategies.h"
#include "ebb/store/file.h"
#include "tests/conformance/walk.h"
#include "tests/thorough.h"

namespace ebb::test::faults_test {
namespace {

using Random = std::mt19937_64;

std::int64_t draw(Random& random, std::int64_t from, std::int64_t to) {
  return std::uniform_int_distribution<std::int64_t>(from, to)(random);
}

std::uint64_t seed() {
  const char* const given = std::getenv("EBB_SEED");
  const std::uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : 1;
  ::testing::Test::RecordProperty("seed", std::to_string(seed));
  return seed;
}

// What goes wrong, and at which of the calls counted from the start of a run. Looked at by the
// store's threads.
struct Faults {
  enum Kind : int { none, fails, no_space, flips, shortens, interrupts, slows, lasting };
  std::atomic<int> kind = none;
  std::atomic<bool> on_writes = false;
  std::atomic<std::int64_t> first = 0, every = 1;
  std::atomic<std::int64_t> calls = 0, struck = 0;

  void set(Random& random) {
    kind = static_cast<int>(draw(random, 1, lasting));
    on_writes = draw(random, 0, 1) == 1;
    first = draw(random, 0, 6);
    every = draw(random, 0, 3) == 0 ? 1 : draw(random, 2, 40);
    // A call that is interrupted each time would be repeated for ever.
    if (kind == interrupts && every == 1) every = 2;
    calls = struck = 0;
  }
  void clear() { kind = none; }
  Kind strike(bool writes) {
    if (kind == none || writes != on_writes) return none;
    const std::int64_t at = calls++ - first;
    const bool now = kind == lasting ? at >= 0 : at >= 0 && at % every == 0;
    if (!now) return none;
    ++struck;
    return static_cast<Kind>(kind == lasting ? static_cast<int>(fails) : kind.load());
  }
} faults;

void flip(std::byte* data, std::size_t bytes) {
  if (bytes > 0) data[bytes / 2] ^= std::byte{0x10};
}

// A medium in memory that fails as `faults` says.
class Faulty : public Medium {
 public:
  void reserve(Bytes bytes) override { memory_.resize(static_cast<std::size_t>(bytes)); }
  void write(Bytes offset, std::span<const std::byte> bytes) override {
    const Faults::Kind kind = act(faults.strike(true));
    std::byte* const to = memory_.data() + offset;
    std::copy(bytes.begin(), bytes.end(), to);
    if (kind == Faults::flips) flip(to, bytes.size());
  }
  void read(Bytes offset, std::span<std::byte> bytes) override {
    const Faults::Kind kind = act(faults.strike(false));
    std::copy_n(memory_.data() + offset, bytes.size(), bytes.begin());
    if (kind == Faults::flips) flip(bytes.data(), bytes.size());
  }

 private:
  static Faults::Kind act(Faults::Kind kind) {
    if (kind == Faults::fails || kind == Faults::no_space) {
      throw Error(ErrorCode::io, "an injected fault");
    }
    if (kind == Faults::slows) std::this_thread::sleep_for(std::chrono::microseconds(300));
    return kind;
  }
  std::vector<std::byte> memory_;
};

SlowTier faulty_tier() {
  SlowTier tier;
  tier.name = "faulty";
  tier.capacity = 64_MiB;
  tier.open = [](const Ledger&) { return std::make_unique<Faulty>(); };
  return tier;
}

// The same at the system calls.
ssize_t answer(Faults::Kind kind, std::size_t bytes) {
  switch (kind) {
    case Faults::fails:
      errno = EIO;
      return -1;
    case Faults::no_space:
      errno = ENOSPC;
      return -1;
    case Faults::interrupts:
      errno = EINTR;
      return -1;
    case Faults::shortens:
      return static_cast<ssize_t>(bytes > 1 ? bytes / 2 : bytes);
    default:
      if (kind == Faults::slows) std::this_thread::sleep_for(std::chrono::microseconds(300));
      return 0;
  }
}

ssize_t faulty_pwrite(int fd, const void* data, std::size_t bytes, off_t at) {
  const Faults::Kind kind = faults.strike(true);
  const ssize_t said = answer(kind, bytes);
  if (said < 0) return said;
  if (kind == Faults::flips) {
    std::vector<std::byte> wrong(bytes + 8192);
    std::size_t room = wrong.size();
    void* start = wrong.data();
    auto* const aligned = static_cast<std::byte*>(std::align(4096, bytes, start, room));
    std::copy_n(static_cast<const std::byte*>(data), bytes, aligned);
    flip(aligned, bytes);
    return ::pwrite(fd, aligned, bytes, at);
  }
  return ::pwrite(fd, data, said > 0 ? static_cast<std::size_t>(said) : bytes, at);
}

ssize_t faulty_pread(int fd, void* data, std::size_t bytes, off_t at) {
  const Faults::Kind kind = faults.strike(false);
  const ssize_t said = answer(kind, bytes);
  if (said < 0) return said;
  const ssize_t got = ::pread(fd, data, said > 0 ? static_cast<std::size_t>(said) : bytes, at);
  if (kind == Faults::flips && got > 0)
    flip(static_cast<std::byte*>(data), static_cast<std::size_t>(got));
  return got;
}

// Completions do not say whether they wrote or read: both count as one.
int faulty_completion(int result) {
  switch (faults.strike(faults.on_writes)) {
    case Faults::fails:
      return -EIO;
    case Faults::no_space:
      return -ENOSPC;
    case Faults::interrupts:
      return -EINTR;
    case Faults::shortens:
      return result > 1 ? result / 2 : result;
    case Faults::slows:
      std::this_thread::sleep_for(std::chrono::microseconds(300));
      return result;
    default:
      return result;
  }
}

class FaultyCalls {
 public:
  FaultyCalls() : kept_(file_calls()) {
    file_calls().pwrite = faulty_pwrite;
    file_calls().pread = faulty_pread;
    file_calls().completion = faulty_completion;
  }
  ~FaultyCalls() { file_calls() = kept_; }
  FaultyCalls(const FaultyCalls&) = delete;
  FaultyCalls& operator=(const FaultyCalls&) = delete;

 private:
  FileCalls kept_;
};

// Of each kind, that faults really struck.
const std::int64_t kCases = thorough() ? 350 : 15;

struct Tally {
  std::int64_t cases = 0, struck = 0, made_good = 0, refused = 0;
};

// One random run with faults, then the same Run without.
void try_case(Random& random, const std::vector<SlowTier>& tiers, Tally& tally) {
  constexpr std::array makers{small_step, gated_step, spiking_step, uneven_step, network_step};
  constexpr std::array strategies{"async",         "pofo", "disk_revolve", "h_revolve",
                                  "single_remote", "auto", "double",       "periodic_disk"};
  const auto step =
      makers[static_cast<std::size_t>(draw(random, 0, makers.size() - 1))](draw(random, 2, 60));
  RunOptions options = planned(*step, tiers);
  options.strategy = strategies[static_cast<std::size_t>(draw(random, 0, strategies.size() - 1))];
  const Results expected = stored_all(*step);

  RunOptions ample = options;
  ample.strategy = "store_all";
  std::optional<Bytes> least;
  Bytes most = 0;
  {
    const Run measured(*step, ample);
    most = measured.plan().prediction.peak[0];
    least =
        least_budget(measured.chain(), measured.platform(),
                     {.strategy = options.strategy, .working = measured.plan().machine.working});
  }
  if (!least) return;
  options.budget = *least + (most > *least ? draw(random, 0, (most - *least) / 3) : 0);
  SCOPED_TRACE(step->name() + ", " + std::to_string(step->steps()) + " steps, " + options.strategy +
               ", budget " + std::to_string(options.budget));
  Run run(*step, options);
  faults.set(random);
  ++tally.cases;
  try {
    EXPECT_TRUE(results_of(run, *step) == expected) << "a wrong gradient";
    const Report report = run.report();
    // Once a tier is given up the rest has another plan.
    const bool same_plan = std::ranges::none_of(report.remarks, [](const std::string& remark) {
      return remark.find("not used any more") != std::string::npos;
    });
    if (same_plan) {
      EXPECT_EQ(report.measured.forwards(), report.predicted.forwards);
      EXPECT_EQ(report.measured.peak, report.predicted.peak);
    }
    EXPECT_LE(report.measured.peak[0], options.budget);
    EXPECT_EQ(step->forwards(), report.measured.forwards() + report.measured.extra_forwards);
    if (report.measured.extra_forwards > 0) ++tally.made_good;
    if (report.measured.failed_transfers > 0) {
      EXPECT_FALSE(report.remarks.empty());
    }
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io) << error.what();
    EXPECT_NE(std::string(error.what()).find("could not be kept"), std::string::npos)
        << error.what();
    ++tally.refused;
  }
  if (faults.struck > 0) ++tally.struck;
  faults.clear();
  EXPECT_TRUE(results_of(run, *step) == expected) << "the run does not work again";
  EXPECT_EQ(run.report().measured.extra_forwards, 0);
}

void expect_not_idle(const Tally& tally) {
  std::printf("  %lld cases, %lld struck, %lld made good, %lld refused\n",
              static_cast<long long>(tally.cases), static_cast<long long>(tally.struck),
              static_cast<long long>(tally.made_good), static_cast<long long>(tally.refused));
  EXPECT_GT(tally.made_good, tally.struck / 10);
  EXPECT_GE(tally.struck, kCases);
}

TEST(Faults, OfATier) {
  Random random(seed());
  Tally tally;
  while (tally.struck < kCases && !HasFailure()) try_case(random, {faulty_tier()}, tally);
  expect_not_idle(tally);
}

// Tiers `before` the file take what they can.
void try_system_calls(FileEngine engine, std::uint64_t seed, const std::vector<SlowTier>& before) {
  Random random(seed);
  const TemporaryFolder folder;
  const FaultyCalls calls;
  Tally tally;
  while (tally.struck < kCases && !testing::Test::HasFailure()) {
    std::vector<SlowTier> tiers = before;
    tiers.push_back(file_tier(folder.path(), 64_MiB, "disk",
                              {.engine = engine, .direct = draw(random, 0, 1) == 1}));
    try_case(random, tiers, tally);
  }
  expect_not_idle(tally);
  EXPECT_TRUE(folder.empty());
}

TEST(Faults, OfSystemCallsByThreads) { try_system_calls(FileEngine::threads, seed() + 1, {}); }

TEST(Faults, OfSystemCallsByIoUring) {
  if (!has_uring()) GTEST_SKIP() << "no io_uring here";
  try_system_calls(FileEngine::uring, seed() + 2, {memory_tier(2_KiB)});
}

}  // namespace
}  // namespace ebb::test::faults_test
