// SPDX-License-Identifier: Apache-2.0
// The file tier and the file system: what it takes, what it leaves, what it says when it cannot.
#include "ebb/store/file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <fstream>

#include "ebb/device/buffer.h"
#include "tests/message_of.h"
#include "tests/store/arrangements.h"

namespace ebb::test::file_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class EveryFile : public EveryTier {};
INSTANTIATE_TEST_SUITE_P(Tiers, EveryFile, ::testing::ValuesIn(files()), name_of);

// The error of opening a store there.
std::string refusal(const Arrangement& arrangement, const std::string& directory, Bytes peak) {
  std::string text;
  const FileOptions options{.engine = arrangement.engine, .direct = arrangement.direct};
  const auto open = [&] {
    const Store store({file_tier(directory, peak, "disk", options)},
                      {{.peak = peak, .largest = peak}}, Ledger(), {});
  };
  EXPECT_EQ(code_of(open, &text), ErrorCode::io);
  return text;
}

void put_and_get(Store& store, Bytes bytes) {
  std::mt19937 random(1);
  const Item item = random_item(random, bytes);
  const Store::Slot slot = store.add(0, bytes);
  store.wait(store.put(0, slot, item));
  Item back(item.size());
  store.wait(store.get(0, slot, back));
  EXPECT_EQ(back, item);
  store.drop(0, slot);
}

TEST_P(EveryFile, NothingIsSeenInTheFolder) {
  Store store = open({.peak = 1_MiB, .largest = 1_MiB, .items = 1});
  EXPECT_TRUE(folder().empty());
  put_and_get(store, 1_MiB);
  EXPECT_TRUE(folder().empty());
}

// A child in the middle of its transfers gets no chance to clean up.
TEST_P(EveryFile, NothingIsLeftByAKilledProcess) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    try {
      Store store = open({.peak = 8_MiB, .largest = 1_MiB, .items = 8});
      const Item item(1_MiB);
      std::array<Store::Slot, 8> slots;
      for (Store::Slot& slot : slots) slot = store.add(0, 1_MiB);
      for (;;) {
        std::array<Store::Ticket, 8> tickets;
        for (std::size_t i = 0; i < 8; ++i) tickets[i] = store.put(0, slots[i], item);
        if (::write(ready[1], "x", 1) != 1) ::_exit(1);
        for (const Store::Ticket ticket : tickets) store.wait(ticket);
      }
    } catch (...) {
      ::_exit(1);
    }
  }
  ::close(ready[1]);
  char seen = 0;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(::read(ready[0], &seen, 1), 1);
  EXPECT_TRUE(folder().empty());
  ::kill(child, SIGKILL);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  ::close(ready[0]);
  EXPECT_TRUE(folder().empty());
}

TEST_P(EveryFile, WithoutUnnamedFilesTheNameIsGoneAtOnce) {
  const PlantedCalls calls;
  calls->open = [](const char* path, int flags, mode_t mode) {
    if ((flags & O_TMPFILE) == O_TMPFILE) {
      errno = EOPNOTSUPP;
      return -1;
    }
    return ::open(path, flags, mode);
  };
  Store store = open({.peak = 1_MiB, .largest = 1_MiB, .items = 1});
  EXPECT_TRUE(folder().empty());
  put_and_get(store, 1_MiB);
}

std::atomic<int> direct_calls;

// Counts what goes past the page cache.
template <class Call, class Data>
ssize_t counted(Call call, int fd, Data data, std::size_t bytes, off_t offset) {
  if ((::fcntl(fd, F_GETFL) & O_DIRECT) != 0) ++direct_calls;
  return call(fd, data, bytes, offset);
}

TEST(FileTier, WholePagesGoPastTheCache) {
  const TemporaryFolder folder;
  const PlantedCalls calls;
  calls->pwrite = [](int fd, const void* data, std::size_t bytes, off_t offset) {
    return counted(::pwrite, fd, data, bytes, offset);
  };
  const Ledger ledger;
  const Buffer memory(ledger, "items", 1_MiB);
  Store store({file_tier(folder.path(), 1_MiB, "disk", {.engine = FileEngine::threads})},
              {{.peak = 1_MiB, .largest = 1_MiB, .items = 1}}, ledger, memory.at(0, 1_MiB));
  const int probe = ::open(folder.path().c_str(), O_TMPFILE | O_RDWR | O_DIRECT, 0600);
  if (probe < 0) GTEST_SKIP() << "no direct I/O in " << folder.path();
  ::close(probe);
  const auto direct_puts = [&](Bytes offset, Bytes bytes) {
    direct_calls = 0;
    const Store::Slot slot = store.add(0, bytes);
    store.wait(store.put(0, slot, memory.at(offset, bytes)));
    store.drop(0, slot);
    return direct_calls.load();
  };
  EXPECT_EQ(direct_puts(0, 64_KiB), 1);
  EXPECT_EQ(direct_puts(0, 64_KiB + 7), 1) << "all but the last 7 bytes";
  EXPECT_EQ(direct_puts(0, 4095), 0);
  EXPECT_EQ(direct_puts(1, 64_KiB), 0);
}

TEST_P(EveryFile, WithoutDirectTransfersTheCacheServes) {
  const PlantedCalls calls;
  calls->open = [](const char* path, int flags, mode_t mode) {
    if ((flags & O_DIRECT) != 0) {
      errno = EINVAL;
      return -1;
    }
    return ::open(path, flags, mode);
  };
  Store store = open({.peak = 1_MiB, .largest = 1_MiB, .items = 1});
  put_and_get(store, 1_MiB);
}

// It opens the file and refuses the transfers.
TEST(FileTier, PretendedDirectTransfersAreFoundOut) {
  const TemporaryFolder folder;
  const PlantedCalls calls;
  calls->pread = [](int fd, void* data, std::size_t bytes, off_t offset) -> ssize_t {
    if ((::fcntl(fd, F_GETFL) & O_DIRECT) == 0) return ::pread(fd, data, bytes, offset);
    errno = EINVAL;
    return -1;
  };
  const Ledger ledger;
  const Buffer memory(ledger, "items", 64_KiB);
  Store store({file_tier(folder.path(), 64_KiB, "disk", {.engine = FileEngine::threads})},
              {{.peak = 64_KiB, .largest = 64_KiB, .items = 1}}, ledger, {});
  const Store::Slot slot = store.add(0, 64_KiB);
  store.wait(store.put(0, slot, memory.at(0, 64_KiB)));
  store.wait(store.get(0, slot, memory.at(0, 64_KiB)));
}

TEST_P(EveryFile, WhereNothingCanBeReservedFreeSpaceCounts) {
  const PlantedCalls calls;
  calls->fallocate = [](int, int, off_t, off_t) {
    errno = EOPNOTSUPP;
    return -1;
  };
  Store store = open({.peak = 1_MiB, .largest = 1_MiB, .items = 1});
  put_and_get(store, 1_MiB);
  EXPECT_THAT(refusal(GetParam(), folder().path(), Bytes{1} << 50),
              AllOf(HasSubstr("1 PiB"), HasSubstr("No space left"), HasSubstr("are free")));
}

TEST_P(EveryFile, AnInterruptedReservationIsTriedAgain) {
  static int calls_seen = 0;
  calls_seen = 0;
  const PlantedCalls calls;
  calls->fallocate = [](int fd, int mode, off_t from, off_t bytes) {
    if (++calls_seen == 3) return ::fallocate(fd, mode, from, bytes);
    errno = EINTR;
    return -1;
  };
  Store store = open({.peak = 1_MiB, .largest = 1_MiB, .items = 1});
  EXPECT_EQ(calls_seen, 3);
  put_and_get(store, 1_MiB);
}

// A small file system of its own in a folder.
class SmallDisk {
 public:
  explicit SmallDisk(const std::string& folder) : folder_(folder) {
    mounted_ = ::mount("tmpfs", folder.c_str(), "tmpfs", 0, "size=1m") == 0;
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  ~SmallDisk() {
    if (mounted_) ::umount2(folder_.c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }

 private:
  std::string folder_;
  bool mounted_ = false;
};

TEST_P(EveryFile, AFullDiskIsFoundBeforeAnythingRuns) {
  const SmallDisk disk(folder().path());
  if (!disk.mounted()) GTEST_SKIP() << "no right to mount a small file system";
  EXPECT_THAT(refusal(GetParam(), folder().path(), 2_MiB),
              AllOf(HasSubstr("2 MiB"), HasSubstr("No space left"), HasSubstr("are free"),
                    HasSubstr(folder().path())));
  Store store = open({.peak = 512_KiB, .largest = 512_KiB, .items = 1});
  put_and_get(store, 512_KiB);
}

// Where nothing can be reserved a disk may fill up behind our back.
TEST_P(EveryFile, AFullDiskIsFoundWhileWriting) {
  const SmallDisk disk(folder().path());
  if (!disk.mounted()) GTEST_SKIP() << "no right to mount a small file system";
  const PlantedCalls calls;
  calls->fallocate = [](int, int, off_t, off_t) {
    errno = EOPNOTSUPP;
    return -1;
  };
  Store store = open({.peak = 900_KiB, .largest = 900_KiB, .items = 1});
  const std::string other = folder().path() + "/other";
  std::ofstream(other) << std::string(800 << 10, 'x');
  const Item item(900_KiB);
  const Store::Slot slot = store.add(0, 900_KiB);
  std::string text;
  EXPECT_EQ(code_of([&] { store.wait(store.put(0, slot, item)); }, &text), ErrorCode::io);
  EXPECT_THAT(text, HasSubstr("No space left"));
  std::filesystem::remove(other);
  store.wait(store.put(0, slot, item));
}

TEST_P(EveryFile, FoldersThatCannotServe) {
  EXPECT_THAT(refusal(GetParam(), folder().path() + "/missing", 1),
              AllOf(HasSubstr("/missing"), HasSubstr("No such file or directory")));
  const std::string file = folder().path() + "/file";
  std::ofstream(file) << "x";
  EXPECT_THAT(refusal(GetParam(), file, 1), AllOf(HasSubstr(file), HasSubstr("Not a directory")));
  EXPECT_THAT(message_of([] { file_tier("", 1); }), HasSubstr("empty"));
}

TEST_P(EveryFile, AFolderThatCannotBeWritten) {
  constexpr uid_t nobody = 65534;
  const uid_t self = ::geteuid();
  ASSERT_EQ(::chmod(folder().path().c_str(), 0555), 0);
  // Root may write anywhere.
  if (self == 0) {
    ASSERT_EQ(::seteuid(nobody), 0);
  }
  const std::string text = refusal(GetParam(), folder().path(), 1);
  if (self == 0) {
    ASSERT_EQ(::seteuid(self), 0);
  }
  ASSERT_EQ(::chmod(folder().path().c_str(), 0755), 0);
  EXPECT_THAT(text, AllOf(HasSubstr("Permission denied"), HasSubstr(folder().path())));
}

TEST(FileTier, UringIsRefusedWhereItIsMissing) {
  if (has_uring()) GTEST_SKIP() << "io_uring is here";
  const TemporaryFolder folder;
  const auto open = [&] {
    const Store store({file_tier(folder.path(), 1, "disk", {.engine = FileEngine::uring})}, {{}},
                      Ledger(), {});
  };
  EXPECT_EQ(code_of(open), ErrorCode::unavailable);
}

}  // namespace
}  // namespace ebb::test::file_test
