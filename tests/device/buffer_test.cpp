// SPDX-License-Identifier: Apache-2.0
#include "ebb/device/buffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "ebb/core/error.h"
#include "tests/message_of.h"

namespace ebb::test::buffer_test {
namespace {

TEST(Buffer, IsAlignedAndChargedToTheByte) {
  for (const Bytes bytes : {1_B, 4095_B, 4096_B, 4097_B, 1_MiB, 3_MiB + 5}) {
    const Ledger ledger(bytes);
    {
      const Buffer buffer(ledger, "a", bytes);
      EXPECT_EQ(buffer.size(), bytes);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % kPage, 0U) << bytes;
      EXPECT_EQ(ledger.live(), bytes);
      std::ranges::fill(buffer.at(0, bytes), std::byte{7});
      EXPECT_EQ(buffer.at(bytes - 1, 1)[0], std::byte{7});
    }
    EXPECT_EQ(ledger.live(), 0);
    EXPECT_EQ(ledger.peak(), bytes);
  }
}

TEST(Buffer, OfNothing) {
  const Ledger ledger(0);
  const Buffer buffer(ledger, "a", 0);
  EXPECT_EQ(buffer.data(), nullptr);
  EXPECT_EQ(buffer.size(), 0);
  EXPECT_EQ(Buffer().size(), 0);
}

TEST(Buffer, RefusedByTheLedger) {
  const Ledger ledger(4_KiB);
  const Buffer first(ledger, "first", 3_KiB);
  try {
    const Buffer second(ledger, "second", 1_KiB + 1);
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::out_of_budget);
  }
  EXPECT_EQ(ledger.live(), 3_KiB);
  EXPECT_EQ(ledger.lines().size(), 1U);
  EXPECT_NE(message_of([&] { const Buffer none(ledger, "none", -1); }), "no error");
}

TEST(Buffer, RefusedByTheSystem) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizers' allocators end the program instead of refusing";
#endif
  const Ledger ledger;
  for (const Bytes bytes : {kUnlimited, kUnlimited - 4096, kUnlimited / 2}) {
    try {
      const Buffer buffer(ledger, "run", bytes);
      FAIL() << "not refused";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
      EXPECT_EQ(error.what(), "the system has no " + format_bytes(bytes) + " for the run");
    }
    EXPECT_EQ(ledger.live(), 0);
  }
}

TEST(Buffer, MovesWithItsBytes) {
  const Ledger ledger(100);
  Buffer a(ledger, "a", 40);
  a.data()[39] = std::byte{9};
  std::byte* const data = a.data();
  Buffer b = std::move(a);
  EXPECT_EQ(b.data(), data);
  EXPECT_EQ(ledger.live(), 40);
  Buffer c(ledger, "c", 60);
  c = std::move(b);
  EXPECT_EQ(ledger.live(), 40) << "what c held is given back at once";
  EXPECT_EQ(c.data(), data);
  EXPECT_EQ(c.size(), 40);
  EXPECT_EQ(c.data()[39], std::byte{9});
  Buffer& same = c;
  c = std::move(same);
  EXPECT_EQ(c.data(), data);
  c = Buffer();
  EXPECT_EQ(ledger.live(), 0);
}

}  // namespace
}  // namespace ebb::test::buffer_test
