// SPDX-License-Identifier: Apache-2.0
// Memory as a medium whose writes take so long that, however slow the machine is, they are much of a
// run's time.
#pragma once

#include <algorithm>
#include <chrono>
#include <span>
#include <thread>
#include <vector>

#include "ebb/store/medium.h"

namespace ebb::test {

class SlowMedium : public Medium {
 public:
  void reserve(Bytes bytes) override { memory_.resize(static_cast<std::size_t>(bytes)); }
  void write(Bytes offset, std::span<const std::byte> bytes) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::copy(bytes.begin(), bytes.end(), memory_.begin() + offset);
  }
  void read(Bytes offset, std::span<std::byte> bytes) override {
    std::copy_n(memory_.begin() + offset, bytes.size(), bytes.begin());
  }

 private:
  std::vector<std::byte> memory_;
};

}  // namespace ebb::test
