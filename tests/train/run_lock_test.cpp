// SPDX-License-Identifier: Apache-2.0
// A run's directory has one owner at a time, and whoever comes second touches nothing.
#include "ebb/train/run_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>

#include "ebb/core/error.h"
#include "ebb/train/train.h"
#include "tests/temporary_folder.h"

namespace ebb::test::run_lock_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string io_message(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io) << error.what();
    return error.what();
  }
  return "no error";
}

std::string content(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TrainOptions small() {
  TrainOptions options;
  options.steps = 20;
  options.batch = 2;
  options.layer.hidden = 4;
  options.threads = 1;
  options.iterations = 2;
  options.test_samples = 0;
  options.save_seconds = 1e9;
  return options;
}

// A process that holds the lock until it is killed.
class Holder {
 public:
  explicit Holder(const fs::path& directory) {
    int ends[2];
    if (::pipe(ends) != 0) throw std::runtime_error("no pipe");
    process_ = ::fork();
    if (process_ == 0) {
      const RunLock lock(directory);
      if (::write(ends[1], "x", 1) != 1) ::_exit(1);
      for (;;) ::pause();
    }
    char ready = 0;
    if (::read(ends[0], &ready, 1) != 1) throw std::runtime_error("it does not lock");
    ::close(ends[0]);
    ::close(ends[1]);
  }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;
  ~Holder() {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  pid_t process() const { return process_; }

 private:
  pid_t process_ = 0;
};

TEST(RunLock, SaysWhoHasItAndGoesWithTheProcess) {
  const TemporaryFolder folder;
  std::optional<Holder> other(folder.path());
  char host[256] = "";
  ASSERT_EQ(::gethostname(host, sizeof host - 1), 0);
  const std::string message = io_message([&] { const RunLock lock(folder.path()); });
  EXPECT_THAT(message,
              AllOf(HasSubstr("'" + folder.path() + "' is in use by process " +
                              std::to_string(other->process()) + " on host " + host + " since 20"),
                    HasSubstr(" UTC; wait for it, or take another directory")));
  other.reset();  // by SIGKILL
  const RunLock lock(folder.path());
  EXPECT_THAT(io_message([&] { const RunLock second(folder.path()); }),
              HasSubstr("process " + std::to_string(::getpid())));
}

TEST(RunLock, TheFileMayBeRemovedMeanwhile) {
  const TemporaryFolder folder;
  const RunLock first{fs::path(folder.path())};
  fs::remove(fs::path(folder.path()) / "lock");
  EXPECT_THAT(io_message([&] { const RunLock second{fs::path(folder.path())}; }),
              HasSubstr("is in use by another process"));
}

TEST(RunLock, CheckpointsAreSavedByTheHolderOnly) {
  const TemporaryFolder folder;
  Checkpoint checkpoint;
  checkpoint.options = "{}";
  {
    const RunLock lock(folder.path());
    EXPECT_THAT(io_message([&] { save_checkpoint(folder.path(), checkpoint); }),
                HasSubstr("is in use by"));
    EXPECT_FALSE(fs::exists(fs::path(folder.path()) / "train.json"));
    save_checkpoint(lock, checkpoint);
    EXPECT_EQ(load_checkpoint(folder.path()).iteration, 0);
  }
  checkpoint.iteration = 1;
  save_checkpoint(folder.path(), checkpoint);
  EXPECT_EQ(load_checkpoint(folder.path()).iteration, 1);
}

// Both before a first checkpoint, when nothing else says that the directory is taken.
TEST(RunLock, TheSecondRunTouchesNothing) {
  const TemporaryFolder folder;
  const fs::path metrics = fs::path(folder.path()) / "metrics.jsonl";
  TrainSettings settings;
  settings.out = folder.path();
  Ranks ranks;
  std::string message;
  TrainSettings first = settings;
  first.line = [&](const TrainLine& line) {
    if (line.metrics.iteration != 1) return;
    const std::string before = content(metrics);
    EXPECT_THAT(before, HasSubstr("\"iteration\":1"));
    message = io_message([&] { train(small(), settings, ranks); });
    EXPECT_EQ(content(metrics), before);
  };
  train(small(), first, ranks);
  EXPECT_THAT(message, HasSubstr("is in use by process " + std::to_string(::getpid())));

  settings.resume = true;
  {
    const Holder other(folder.path());
    EXPECT_THAT(io_message([&] { train(small(), settings, ranks); }), HasSubstr("is in use by"));
  }
  EXPECT_EQ(train(small(), settings, ranks).iterations, 2);
}

TEST(RunLock, ADirectoryWithoutACheckpointIsLeftAlone) {
  const TemporaryFolder folder;
  TrainSettings settings;
  settings.resume = true;
  Ranks ranks;
  settings.out = folder.path();
  EXPECT_THAT(io_message([&] { train(small(), settings, ranks); }), HasSubstr("has no train.json"));
  EXPECT_TRUE(folder.empty());
  settings.out = fs::path(folder.path()) / "nowhere";
  EXPECT_THAT(io_message([&] { train(small(), settings, ranks); }),
              HasSubstr("there is no directory"));
  EXPECT_TRUE(folder.empty());
}

TEST(RunLock, ACheckpointThatIsNoLongerTheLastIsRefused) {
  const TemporaryFolder folder;
  TrainSettings settings;
  settings.out = folder.path();
  Ranks ranks;
  train(small(), settings, ranks);
  Checkpoint loaded = load_checkpoint(folder.path());
  TrainOptions more = small();
  more.iterations = 3;
  settings.resume = true;
  train(more, settings, ranks);
  EXPECT_THAT(io_message([&] { train(more, settings, ranks, loaded); }),
              HasSubstr("another run has gone on from the checkpoint"));
}

TEST(RunLock, OfAnotherDirectoryIsRefused) {
  const TemporaryFolder folder, other;
  const RunLock lock(other.path());
  TrainSettings settings;
  settings.out = folder.path();
  settings.lock = &lock;
  Ranks ranks;
  try {
    train(small(), settings, ranks);
    FAIL() << "it trains";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr("the lock is of '"));
  }
}

}  // namespace
}  // namespace ebb::test::run_lock_test
