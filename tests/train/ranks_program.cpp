// SPDX-License-Identifier: Apache-2.0
// What each of several processes does in the tests of Ranks: `ranks_program sums SIZE`, or one of the
// ways in which rank 1 fails while the others wait for it.
#include <cstdint>
#include <exception>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "ebb/core/random.h"
#include "ebb/train/ranks.h"

namespace {

void expect(bool good, const std::string& what) {
  if (!good) throw std::runtime_error("not so: " + what);
}

template <class Number>
std::vector<Number> of_rank(int rank, std::size_t count) {
  const ebb::Random random(1, static_cast<std::uint64_t>(rank));
  std::vector<Number> numbers(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto scale = static_cast<double>(1 << ((i + 7 * static_cast<std::size_t>(rank)) % 20));
    numbers[i] = static_cast<Number>((random.uniform(i) - 0.5) / 3 * scale);
  }
  return numbers;
}

// Added up in the order of ranks, which shows in the last bits of doubles.
template <class Number>
void check_sum(ebb::Ranks& ranks, std::size_t count) {
  std::vector<double> totals(count);
  for (int rank = 0; rank < ranks.size(); ++rank) {
    const std::vector<Number> numbers = of_rank<Number>(rank, count);
    for (std::size_t i = 0; i < count; ++i) totals[i] += static_cast<double>(numbers[i]);
  }
  std::vector<Number> numbers = of_rank<Number>(ranks.rank(), count);
  ranks.sum(numbers);
  for (std::size_t i = 0; i < count; ++i) {
    expect(numbers[i] == static_cast<Number>(totals[i]),
           "number " + std::to_string(i) + " of " + std::to_string(count) + " is the sum");
  }
}

void check_all(ebb::Ranks& ranks, int size) {
  expect(ranks.size() == size, "there are " + std::to_string(size) + " ranks");
  expect(ranks.rank() >= 0 && ranks.rank() < size, "the rank is one of them");
  // Fewer numbers than ranks, as many, more; and more than go at a time.
  for (const std::size_t count : std::vector<std::size_t>{0, 1, 2, 3, 7, 1000, 1'100'001}) {
    check_sum<float>(ranks, count);
    check_sum<double>(ranks, count);
  }
  for (int rank = 0; rank < size; ++rank) {
    expect(ranks.any(ranks.rank() == rank), "any sees rank " + std::to_string(rank));
  }
  expect(!ranks.any(false), "any sees none");
  // Each rank speaks once: the test counts them.
  std::cout << "rank " + std::to_string(ranks.rank()) + " is good\n" << std::flush;
}

void fail_alone(ebb::Ranks& ranks) {
  if (ranks.rank() == 1) throw std::runtime_error("rank 1 has had enough");
  for (;;) ranks.any(false);
}

// As docs in ranks.h say a program should.
int run(const std::string& what, int size) {
  ebb::Ranks ranks;
  try {
    if (what == "sums") check_all(ranks, size);
    if (what == "fails") fail_alone(ranks);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n' << std::flush;
    ranks.end_all(3);
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  try {
    if (what == "unwinds") {
      ebb::Ranks ranks;
      fail_alone(ranks);
    }
    return run(what, argc > 2 ? std::stoi(argv[2]) : 1);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n' << std::flush;
    return 4;
  }
}
