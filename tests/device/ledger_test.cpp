// SPDX-License-Identifier: Apache-2.0
#include "ebb/device/ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <random>
#include <thread>
#include <utility>

#include "ebb/core/error.h"
#include "tests/message_of.h"

namespace ebb::test::ledger_test {
namespace {

// The text of the refusal; anything else is a failure.
std::string refusal(Account& account, Bytes bytes) {
  try {
    account.charge(bytes);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::out_of_budget);
    return error.what();
  }
  ADD_FAILURE() << bytes << " were not refused";
  return "";
}

bool charged(Account& account, Bytes bytes) {
  try {
    account.charge(bytes);
    return true;
  } catch (const Error&) {
    return false;
  }
}

TEST(Ledger, TheCapIsExact) {
  const Ledger ledger(100);
  Account a = ledger.open("a");
  Account b = ledger.open("b");
  a.charge(60);
  refusal(b, 41);
  EXPECT_EQ(ledger.live(), 60);
  EXPECT_EQ(b.live(), 0);
  EXPECT_EQ(b.peak(), 0);
  b.charge(40);
  EXPECT_EQ(ledger.live(), 100);
  refusal(a, 1);
  a.charge(0);
  refusal(a, kUnlimited);
  b.release(1);
  a.charge(1);
  EXPECT_EQ(a.live(), 61);
  EXPECT_EQ(b.live(), 39);
}

TEST(Ledger, PeaksStay) {
  const Ledger ledger(100);
  Account a = ledger.open("a");
  a.charge(70);
  a.release(50);
  {
    Account b = ledger.open("b");
    b.charge(30);
    EXPECT_EQ(b.peak(), 30);
  }
  EXPECT_EQ(ledger.peak(), 70);
  EXPECT_EQ(ledger.live(), 20);
  EXPECT_EQ(a.peak(), 70);
  EXPECT_EQ(a.live(), 20);
  a.charge(60);
  EXPECT_EQ(ledger.peak(), 80);
}

TEST(Ledger, ARefusalSaysWhoAndWhat) {
  const Ledger ledger(4_KiB);
  Account held = ledger.open("states");
  held.charge(3_KiB);
  Account tapes = ledger.open("tapes");
  EXPECT_EQ(refusal(tapes, 2_KiB),
            "tapes needs 2 KiB more; of 4 KiB allowed 3 KiB are held. Allow more or hold less at a "
            "time");
}

TEST(Ledger, WithoutALimitNothingIsRefused) {
  const Ledger ledger;
  EXPECT_EQ(ledger.limit(), kUnlimited);
  Account account = ledger.open("all");
  account.charge(kUnlimited);
  refusal(account, 1);
  account.release(kUnlimited);
  EXPECT_EQ(ledger.live(), 0);
}

TEST(Ledger, MistakesAreRefused) {
  EXPECT_THAT(message_of([] { const Ledger ledger(-1); }), ::testing::HasSubstr("-1"));
  const Ledger ledger(10);
  Account account = ledger.open("a");
  EXPECT_THAT(message_of([&] { account.charge(-1); }), ::testing::HasSubstr("-1"));
  account.charge(5);
  account.release(-3);
  EXPECT_EQ(ledger.live(), 5);
  account.release(100);
  EXPECT_EQ(ledger.live(), 0);
}

TEST(Ledger, CopiesShareTheirBooks) {
  const Ledger first(50);
  const std::vector<Ledger> copies(2, first);
  const Ledger& second = copies[1];
  Account a = first.open("a");
  a.charge(30);
  Account b = second.open("b");
  refusal(b, 21);
  b.charge(20);
  EXPECT_EQ(first.live(), 50);
  EXPECT_EQ(second.peak(), 50);
}

TEST(Ledger, AnAccountOutlivesItsLedger) {
  Account account;
  {
    const Ledger ledger(10);
    account = ledger.open("a");
  }
  account.charge(10);
  refusal(account, 1);
  EXPECT_EQ(account.live(), 10);
}

TEST(Ledger, MovedAccountsKeepWhatTheyHold) {
  const Ledger ledger(100);
  Account a = ledger.open("a");
  a.charge(10);
  Account b = std::move(a);
  EXPECT_EQ(b.live(), 10);
  Account c = ledger.open("c");
  c.charge(20);
  c = std::move(b);
  EXPECT_EQ(ledger.live(), 10) << "what c held is given back at once";
  EXPECT_EQ(c.live(), 10);
  ASSERT_EQ(ledger.lines().size(), 1U);
  EXPECT_EQ(ledger.lines()[0].name, "a");
  Account& same = c;
  c = std::move(same);
  EXPECT_EQ(c.live(), 10);
  c = Account();
  EXPECT_EQ(ledger.live(), 0);
  EXPECT_TRUE(ledger.lines().empty());
}

TEST(Ledger, LinesAreTheOpenAccounts) {
  const Ledger ledger(100);
  Account a = ledger.open("a");
  a.charge(10);
  Account b = ledger.open("b");
  b.charge(5);
  b.release(3);
  {
    Account c = ledger.open("c");
    c.charge(1);
    EXPECT_EQ(ledger.lines().size(), 3U);
  }
  const auto lines = ledger.lines();
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0].name, "a");
  EXPECT_EQ(lines[0].live, 10);
  EXPECT_EQ(lines[1].name, "b");
  EXPECT_EQ(lines[1].live, 2);
  EXPECT_EQ(lines[1].peak, 5);
}

// Threads that take what they can get, byte by byte: together they get the limit, not one more.
TEST(Ledger, ThreadsShareTheCap) {
  const Ledger ledger(5000);
  std::array<Account, 4> accounts;
  for (Account& account : accounts) account = ledger.open("thread");
  std::array<std::thread, 4> threads;
  for (std::size_t i = 0; i < 4; ++i) {
    threads[i] = std::thread([&account = accounts[i]] {
      while (charged(account, 1)) {
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  Bytes sum = 0;
  for (const Account& account : accounts) sum += account.live();
  EXPECT_EQ(sum, 5000);
  EXPECT_EQ(ledger.peak(), 5000);
}

TEST(Ledger, ThreadsComeAndGo) {
  const Ledger ledger(1000);
  std::array<std::thread, 4> threads;
  for (unsigned seed = 0; seed < 4; ++seed) {
    threads[seed] = std::thread([&ledger, seed] {
      std::mt19937 random(seed);
      for (int i = 0; i < 500; ++i) {
        Account account = ledger.open("thread");
        Bytes held = 0;
        for (int k = 0; k < 5; ++k) {
          const auto bytes = static_cast<Bytes>(random() % 200);
          if (charged(account, bytes)) held += bytes;
        }
        account.release(held / 2);
        held -= held / 2;
        ASSERT_EQ(account.live(), held);
        ASSERT_LE(ledger.live(), 1000);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ledger.live(), 0);
  EXPECT_LE(ledger.peak(), 1000);
  EXPECT_TRUE(ledger.lines().empty());
}

}  // namespace
}  // namespace ebb::test::ledger_test
