// SPDX-License-Identifier: Apache-2.0
// What networks on a CUDA device are built on: on a GPU, and on a device that the host plays.
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <vector>

#include "ebb/core/error.h"
#include "ebb/core/half_math.h"
#include "ebb/device/cuda_arrays.h"
#include "ebb/device/cuda_pool.h"
#include "ebb/device/cuda_products.h"
#include "ebb/device/cuda_stream.h"
#include "ebb/device/device_memory.h"
#include "ebb/device/pinned_memory.h"

namespace ebb::test::cuda_test {
namespace {

class Cuda : public testing::Test {
 protected:
  void SetUp() override {
    const std::string missing = cuda_missing();
    if (!missing.empty()) GTEST_SKIP() << missing;
  }
};

template <class Work>
void expect_code(ErrorCode code, const Work& work) {
  try {
    work();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
  }
}

TEST_F(Cuda, MemoryGoesThereAndBack) {
  std::vector<int> from(1000), to(1000);
  std::iota(from.begin(), from.end(), 1);
  DeviceMemory memory(4000);
  memory.download(to);
  EXPECT_EQ(to, std::vector<int>(1000)) << "it begins with zeros";
  memory.upload(from);
  memory.download(to);
  EXPECT_EQ(to, from);
  from.push_back(0);
  expect_code(ErrorCode::invalid_argument, [&] { memory.upload(from); });
  EXPECT_FALSE(cuda_device_name().empty());
}

TEST_F(Cuda, MoreMemoryThanThereIsIsAnError) {
  expect_code(ErrorCode::out_of_memory, [] { DeviceMemory(Bytes{1} << 50); });
  const Ledger ledger;
  CudaPool pool(ledger, "test");
  expect_code(ErrorCode::out_of_memory, [&] { pool.take(Bytes{1} << 50, nullptr); });
  EXPECT_EQ(ledger.live(), 0);
  EXPECT_NE(pool.take(1, nullptr).data(), nullptr);
}

TEST_F(Cuda, APoolKeepsToItsLedger) {
  const Ledger ledger(4096);
  CudaPool pool(ledger, "test");
  {
    const CudaBlock one = pool.take(1, nullptr), two = pool.take(3000, nullptr);
    EXPECT_EQ(ledger.live(), 512 + 3072);
    expect_code(ErrorCode::out_of_budget, [&] { pool.take(513, nullptr); });
    EXPECT_NE(pool.take(512, nullptr).data(), nullptr);
  }
  EXPECT_EQ(ledger.live(), 0);
  EXPECT_EQ(pool.peak(), 4096);
  EXPECT_GT(pool.reserved(), 0);
}

TEST_F(Cuda, WhatOnePoolDoesNotUseIsThereForOthers) {
  const Ledger ledger;
  CudaPool one(ledger, "one"), other(ledger, "other");
  const Bytes most = cuda_free_bytes() / 4 * 3;
  EXPECT_NE(one.take(most, nullptr).data(), nullptr);
  EXPECT_GE(one.reserved(), most) << "it is kept for the next time";
  EXPECT_NE(other.take(most, nullptr).data(), nullptr);
  EXPECT_NE(DeviceMemory(most).data(), nullptr);
  EXPECT_LT(one.reserved() + other.reserved(), most);
}

TEST_F(Cuda, AnotherStreamCopiesWhenItMay) {
  const Ledger ledger;
  CudaPool pool(ledger, "test");
  constexpr Bytes size = Bytes{64} << 20;
  CudaBlock block = pool.take(size, nullptr), back = pool.take(size, nullptr);
  PinnedMemory host(ledger, "host", size);
  CudaStream other;
  cuda_fill(CudaNumber::f32, block.data(), 3, size / 4, nullptr);
  CudaEvent filled, sent, fetched;
  filled.record(nullptr);
  filled.hold(other.get());
  cuda_copy(host.data(), block.data(), size, other.get());
  sent.record(other.get());
  sent.hold(nullptr);
  cuda_zero(block.data(), size, nullptr);
  cuda_copy(back.data(), host.data(), size, other.get());
  fetched.record(other.get());
  fetched.hold(nullptr);
  DeviceMemory seen(size);
  cuda_copy(seen.data(), back.data(), size, nullptr);
  std::vector<float> found(static_cast<std::size_t>(size / 4));
  seen.download(found);
  EXPECT_EQ(found, std::vector<float>(found.size(), 3));
  EXPECT_GE(fetched.seconds_since(filled), 0);
}

// Rows without any place, and one longer than a warp.
TEST_F(Cuda, NumbersGoToTheirPlacesAndBack) {
  constexpr std::int64_t rows = 5, width = 100;
  const std::vector<std::int64_t> starts = {0, 0, 2, 52, 52, 53};
  std::vector<std::int32_t> columns = {3, 99};
  for (std::int32_t i = 0; i < 50; ++i) columns.push_back(2 * i + 1);
  columns.push_back(0);
  std::vector<float> numbers(columns.size());
  std::iota(numbers.begin(), numbers.end(), 1.F);
  DeviceMemory on_starts(6 * 8), on_columns(53 * 4), on_numbers(53 * 4), matrix(rows * width * 4);
  on_starts.upload(starts);
  on_columns.upload(columns);
  on_numbers.upload(numbers);
  CudaPlaces places;
  places.starts = reinterpret_cast<const std::int64_t*>(on_starts.data());
  places.columns = reinterpret_cast<const std::int32_t*>(on_columns.data());
  places.rows = rows;
  places.width = width;
  std::vector<float> wanted(rows * width, -1);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::size_t row = i < 2 ? 1 : i < 52 ? 2 : 4;
    wanted[row * width + static_cast<std::size_t>(columns[i])] = numbers[i];
  }
  for (const CudaNumber number : {CudaNumber::f32, CudaNumber::bf16, CudaNumber::f16}) {
    DeviceMemory floats(matrix.size());
    auto* const from = reinterpret_cast<const float*>(on_numbers.data());
    cuda_fill(number, matrix.data(), -1, rows * width, nullptr);
    cuda_scatter(number, matrix.data(), places, from, nullptr);
    cuda_convert({CudaNumber::f32, floats.data(), width}, {number, matrix.data(), width}, rows,
                 width, nullptr);
    std::vector<float> found(wanted.size()), back(numbers.size());
    floats.download(found);
    EXPECT_EQ(found, wanted);
    DeviceMemory gathered(on_numbers.size());
    cuda_gather(reinterpret_cast<float*>(gathered.data()), places,
                reinterpret_cast<const float*>(floats.data()), nullptr);
    gathered.download(back);
    EXPECT_EQ(back, numbers);
  }
}

TEST_F(Cuda, NumbersAreRounded) {
  const std::vector<float> from = {1, 1.00390625F, -3.14159F, 70000, 1e-6F, 0.1F};
  const auto count = static_cast<std::int64_t>(from.size());
  DeviceMemory floats(64), halves(64), again(64);
  floats.upload(from);
  for (const CudaNumber number : {CudaNumber::bf16, CudaNumber::f16}) {
    std::vector<std::uint16_t> found(from.size());
    cuda_convert({number, halves.data(), count}, {CudaNumber::f32, floats.data(), count}, 1, count,
                 nullptr);
    halves.download(found);
    for (std::size_t i = 0; i < from.size(); ++i)
      EXPECT_EQ(found[i], number == CudaNumber::bf16 ? to_bf16(from[i]) : to_fp16(from[i])) << i;
  }
  // Rows with gaps: the last number of each row of 3.
  cuda_convert({CudaNumber::f32, again.data(), 2}, {CudaNumber::f32, floats.data() + 8, 3}, 2, 1,
               nullptr);
  std::vector<float> found(3);
  again.download(found);
  EXPECT_EQ(found, (std::vector<float>{from[2], 0, from[5]}));
  cuda_add(CudaNumber::f32, again.data(), reinterpret_cast<const float*>(floats.data()),
           reinterpret_cast<const float*>(floats.data() + 4), 2, nullptr);
  cuda_repeat(CudaNumber::f32, again.data() + 8, again.data(), 2, 2, nullptr);
  found.resize(6);
  again.download(found);
  const float a = from[0] + from[1], b = from[1] + from[2];
  EXPECT_EQ(found, (std::vector<float>{a, b, a, b, a, b}));
}

// Small whole numbers: exact in every type.
TEST_F(Cuda, ProductsAreRight) {
  constexpr std::int64_t rows = 3, columns = 5, inner = 7;
  std::vector<float> a(rows * inner), b(inner * columns);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i % 5) - 2;
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i % 4) - 1;
  DeviceMemory on_a(256), on_b(256), floats(256), sums(256), workspace(CudaProducts::kWorkspace);
  CudaProducts products;
  products.use(nullptr, workspace.data());
  for (const CudaNumber number : {CudaNumber::bf16, CudaNumber::f16, CudaNumber::f32}) {
    for (int way = 0; way < 8; ++way) {
      CudaProduct product;
      product.number = number;
      product.a_transposed = (way & 1) != 0;
      product.b_transposed = (way & 2) != 0;
      product.adds = (way & 4) != 0;
      const auto put = [&](const std::vector<float>& from, DeviceMemory& to) {
        floats.upload(from);
        const auto count = static_cast<std::int64_t>(from.size());
        cuda_convert({number, to.data(), count}, {CudaNumber::f32, floats.data(), count}, 1, count,
                     nullptr);
      };
      put(a, on_a);
      put(b, on_b);
      cuda_fill(CudaNumber::f32, sums.data(), 100, rows * columns, nullptr);
      product.a = on_a.data();
      product.b = on_b.data();
      product.rows = rows;
      product.columns = columns;
      product.inner = inner;
      product.sums = sums.data();
      products.multiply(product);
      std::vector<float> found(rows * columns), wanted(found.size());
      sums.download(found);
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t c = 0; c < columns; ++c) {
          float sum = product.adds ? 100 : 0;
          for (std::int64_t k = 0; k < inner; ++k) {
            sum +=
                a[static_cast<std::size_t>(product.a_transposed ? k * rows + r : r * inner + k)] *
                b[static_cast<std::size_t>(product.b_transposed ? c * inner + k : k * columns + c)];
          }
          wanted[static_cast<std::size_t>(r * columns + c)] = sum;
        }
      }
      EXPECT_EQ(found, wanted) << static_cast<int>(number) << " " << way;
    }
  }
}

// Of [2,3] and [3,2] that lie in rows of 4, into rows of 4. The number that tf32 does not have is multiplied as such or not.
TEST_F(Cuda, ProductsOfRowsWithGaps) {
  constexpr float fine = 1 + 0x1p-20F;
  DeviceMemory a(256), b(256), sums(256), workspace(CudaProducts::kWorkspace);
  a.upload(std::vector<float>{fine, 2, 3, -100, 4, 5, 6, -100});
  b.upload(std::vector<float>{1, 2, -100, -100, 0, 1, -100, -100, 0, 0, -100, -100});
  CudaProducts products;
  products.use(nullptr, workspace.data());
  CudaProduct product;
  product.a = a.data();
  product.b = b.data();
  product.a_stride = product.b_stride = product.sums_stride = 4;
  product.rows = product.columns = 2;
  product.inner = 3;
  product.sums = sums.data();
  for (const bool tf32 : {false, true}) {
    sums.upload(std::vector<float>(8, 7));
    product.tf32 = tf32;
    products.multiply(product);
    std::vector<float> found(8);
    sums.download(found);
    if (tf32) {
      EXPECT_NEAR(found[0], 1, 0x1p-10);
      found[0] = fine;
      found[1] = 2 * fine + 2;
    }
    EXPECT_EQ(found, (std::vector<float>{fine, 2 * fine + 2, 7, 7, 4, 13, 7, 7}));
  }
}

}  // namespace
}  // namespace ebb::test::cuda_test
