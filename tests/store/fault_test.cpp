// SPDX-License-Identifier: Apache-2.0
// Faults at every place where one can happen: an error comes out, never a wrong item.
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <optional>

#include "ebb/device/buffer.h"
#include "tests/store/arrangements.h"

namespace ebb::test::fault_test {
namespace {

// Fails at its n-th transfer, with nothing or with half of it done.
class FailingMedium : public Medium {
 public:
  FailingMedium(std::atomic<int>& calls_left, bool halfway)
      : calls_left_(calls_left), halfway_(halfway) {}
  void reserve(Bytes bytes) override { bytes_.resize(static_cast<std::size_t>(bytes)); }
  void write(Bytes offset, std::span<const std::byte> bytes) override {
    const bool fails = calls_left_-- == 0;
    std::ranges::copy(fails && !halfway_ ? bytes.first(0)
                      : fails            ? bytes.first(bytes.size() / 2)
                                         : bytes,
                      bytes_.begin() + offset);
    if (fails) fail(ErrorCode::io, "planted");
  }
  void read(Bytes offset, std::span<std::byte> bytes) override {
    if (calls_left_-- == 0) fail(ErrorCode::io, "planted");
    std::ranges::copy(std::span(bytes_).subspan(static_cast<std::size_t>(offset), bytes.size()),
                      bytes.begin());
  }

 private:
  std::atomic<int>& calls_left_;
  bool halfway_;
  std::vector<std::byte> bytes_;
};

// A script of puts, gets, drops and closed gaps. Returns how many calls failed; an item that comes
// back wrong is a failure of the test. Items that are lost are put again.
int run_script(Store& store, unsigned seed) {
  constexpr Bytes peak = 1000;
  std::mt19937 random(seed);
  std::map<Store::Slot, Item> items;
  Bytes held = 0;
  int failed = 0;
  const auto tried = [&failed](const std::function<void()>& call) {
    try {
      call();
      return true;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::io);
      ++failed;
      return false;
    }
  };
  for (int i = 0; i < 100; ++i) {
    const Bytes bytes = 1 + static_cast<Bytes>(random() % 300);
    if (held + bytes <= peak) {
      Store::Slot slot = 0;
      if (!tried([&] { slot = store.add(0, bytes); })) continue;
      held += bytes;
      const Item& item = items.emplace(slot, random_item(random, bytes)).first->second;
      const auto put = [&] { store.wait(store.put(0, slot, item)); };
      if (!tried(put)) {
        EXPECT_TRUE(tried(put));
      }
    } else {
      auto it = items.begin();
      std::advance(it, random() % items.size());
      Item back(it->second.size());
      if (tried([&] { store.wait(store.get(0, it->first, back)); })) {
        EXPECT_EQ(back, it->second) << "seed " << seed << ", change " << i;
      }
      held -= static_cast<Bytes>(back.size());
      store.drop(0, it->first);
      items.erase(it);
    }
    EXPECT_EQ(store.held(0), held);
  }
  return failed;
}

TEST(Fault, AtEveryTransfer) {
  for (const bool halfway : {false, true}) {
    bool reached = true;
    int most = 0;
    for (int n = 0; reached; ++n) {
      std::atomic<int> calls_left = n;
      const SlowTier tier{.name = "failing", .open = [&](const Ledger&) {
                            return std::make_unique<FailingMedium>(calls_left, halfway);
                          }};
      const TierNeeds needs{.peak = 1000, .largest = 300, .items = 50};
      Store store({tier}, {needs}, Ledger(), {});
      const int failed = run_script(store, 3);
      reached = calls_left < 0;
      EXPECT_EQ(failed > 0, reached) << "transfer " << n;
      EXPECT_LE(failed, 2) << "one fault costs one item: its move and its read";
      most = n;
    }
    EXPECT_GT(most, 100) << "the script has hardly any transfers";
  }
}

TEST(Fault, OpeningFails) {
  const SlowTier tier{.name = "none", .open = [](const Ledger&) -> std::unique_ptr<Medium> {
                        fail(ErrorCode::io, "planted");
                      }};
  const auto open = [&] { const Store store({memory_tier(1), tier}, {{}, {}}, Ledger(), {}); };
  EXPECT_EQ(code_of(open), ErrorCode::io);
}

// Faults of the system's calls. The item has pages of its own, so that direct I/O is met too.
class FileFault : public EveryTier {
 protected:
  static constexpr Bytes kBytes = 700'001;

  void SetUp() override {
    EveryTier::SetUp();
    if (IsSkipped()) return;
    std::mt19937 random(1);
    item_ = Buffer(ledger(), "item", kBytes);
    back_ = Buffer(ledger(), "back", kBytes);
    std::ranges::copy(random_item(random, kBytes), item_.data());
    store_.emplace(std::vector{GetParam().tier(folder(), 2 * kBytes)},
                   std::vector{TierNeeds{.peak = 2 * kBytes, .largest = kBytes, .items = 2}},
                   ledger(), std::span<std::byte>());
    slot_ = store_->add(0, kBytes);
    calls_seen = 0;
  }
  void put() { store_->wait(store_->put(0, slot_, item_.at(0, kBytes))); }
  void get() {
    const auto back = back_.at(0, kBytes);
    std::ranges::fill(back, std::byte{0});
    store_->wait(store_->get(0, slot_, back));
    EXPECT_TRUE(std::ranges::equal(back, item_.at(0, kBytes)));
  }

  static std::atomic<int> calls_seen;

 private:
  Buffer item_, back_;
  std::optional<Store> store_;
  Store::Slot slot_ = 0;
};
std::atomic<int> FileFault::calls_seen;
INSTANTIATE_TEST_SUITE_P(Tiers, FileFault, ::testing::ValuesIn(files()), name_of);

int fail_with(int error) {
  errno = error;
  return -1;
}

TEST_P(FileFault, PartsAreContinued) {
  const PlantedCalls calls;
  calls->pwrite = [](int fd, const void* data, std::size_t bytes, off_t offset) {
    ++calls_seen;
    return std::min<ssize_t>(::pwrite(fd, data, bytes, offset), 100'003);
  };
  calls->pread = [](int fd, void* data, std::size_t bytes, off_t offset) {
    ++calls_seen;
    return std::min<ssize_t>(::pread(fd, data, bytes, offset), 70'001);
  };
  calls->completion = [](int result) {
    ++calls_seen;
    return result > 70'001 ? 70'001 : result;
  };
  put();
  EXPECT_GE(calls_seen, 7);
  get();
  EXPECT_GE(calls_seen, 17);
}

TEST_P(FileFault, InterruptedCallsAreTriedAgain) {
  const PlantedCalls calls;
  calls->pwrite = [](int fd, const void* data, std::size_t bytes, off_t offset) -> ssize_t {
    return ++calls_seen % 3 != 0 ? fail_with(EINTR) : ::pwrite(fd, data, bytes, offset);
  };
  calls->pread = [](int fd, void* data, std::size_t bytes, off_t offset) -> ssize_t {
    return ++calls_seen % 3 != 0 ? fail_with(EINTR) : ::pread(fd, data, bytes, offset);
  };
  calls->completion = [](int result) { return ++calls_seen % 3 != 0 ? -EINTR : result; };
  put();
  EXPECT_GE(calls_seen, 3);
  get();
  EXPECT_GE(calls_seen, 6);
}

TEST_P(FileFault, AFailedWriteIsAnErrorOnce) {
  for (const int error : {EIO, ENOSPC}) {
    std::string text;
    {
      static int planted = 0;
      planted = error;
      const PlantedCalls calls;
      calls->pwrite = [](int, const void*, std::size_t, off_t) -> ssize_t {
        return fail_with(planted);
      };
      calls->completion = [](int) { return -planted; };
      EXPECT_EQ(code_of([this] { put(); }, &text), ErrorCode::io);
    }
    EXPECT_NE(text.find(std::strerror(error)), std::string::npos) << text;
    EXPECT_NE(text.find(folder().path()), std::string::npos) << text;
    EXPECT_EQ(code_of([this] { get(); }), ErrorCode::io) << "it is not there";
    put();
    get();
  }
}

// The third part of the item fails; the others are under way then.
TEST_P(FileFault, AFailedReadIsAnErrorOnce) {
  put();
  {
    const PlantedCalls calls;
    calls->pread = [](int fd, void* data, std::size_t bytes, off_t offset) -> ssize_t {
      if (++calls_seen == 3) return fail_with(EIO);
      return ::pread(fd, data, std::min<std::size_t>(bytes, 4096), offset);
    };
    calls->completion = [](int result) { return ++calls_seen == 3 ? -EIO : result; };
    EXPECT_EQ(code_of([this] { get(); }), ErrorCode::io);
  }
  get();
}

// A file that became shorter: nothing more is read, for ever.
TEST_P(FileFault, TheEndOfTheFileIsAnError) {
  put();
  {
    const PlantedCalls calls;
    calls->pread = [](int, void*, std::size_t, off_t) -> ssize_t { return 0; };
    calls->completion = [](int) { return 0; };
    EXPECT_EQ(code_of([this] { get(); }), ErrorCode::io);
  }
  get();
}

// io_uring's completions carry no bytes.
class ThreadFault : public FileFault {};
INSTANTIATE_TEST_SUITE_P(Tiers, ThreadFault, ::testing::Values(files()[0], files()[1]), name_of);

TEST_P(ThreadFault, AFlippedBitOnTheWayIsFound) {
  put();
  {
    const PlantedCalls calls;
    calls->pread = [](int fd, void* data, std::size_t bytes, off_t offset) {
      const ssize_t done = ::pread(fd, data, bytes, offset);
      static_cast<unsigned char*>(data)[bytes / 2] ^= 4;
      return done;
    };
    std::string text;
    EXPECT_EQ(code_of([this] { get(); }, &text), ErrorCode::io);
    EXPECT_NE(text.find("checksum"), std::string::npos);
  }
  get();
}

// The descriptor of the store's file in the folder, by way of the page cache.
int descriptor_in(const std::string& folder) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const auto target = std::filesystem::read_symlink(entry.path(), gone);
    const int fd = std::stoi(entry.path().filename());
    if (!gone && target.string().starts_with(folder) && (::fcntl(fd, F_GETFL) & O_DIRECT) == 0) {
      return fd;
    }
  }
  return -1;
}

TEST_P(FileFault, AFlippedBitInTheFileIsFound) {
  put();
  const int fd = descriptor_in(folder().path());
  ASSERT_GE(fd, 0);
  for (const off_t at : {off_t{0}, off_t{333'333}, off_t{kBytes - 1}}) {
    const auto flip = [&] {
      unsigned char byte = 0;
      ASSERT_EQ(::pread(fd, &byte, 1, at), 1);
      byte ^= 1;
      ASSERT_EQ(::pwrite(fd, &byte, 1, at), 1);
    };
    flip();
    EXPECT_EQ(code_of([this] { get(); }), ErrorCode::io) << "byte " << at;
    flip();
    get();
  }
}

}  // namespace
}  // namespace ebb::test::fault_test
