// SPDX-License-Identifier: Apache-2.0
// What training does to arrays on a GPU beside the cells' kernels, as gated_program.cpp has those: losses, optimisers, sparse weights, the
// readout that integrates.
#include <array>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "ebb/cell/leaky.h"
#include "ebb/device/cuda_arrays.h"
#include "ebb/device/cuda_training.h"
#include "ebb/device/device_memory.h"
#include "tests/gpu/gpu_program.h"

namespace ebb {
namespace {

constexpr std::array kNumbers = {CudaNumber::bf16, CudaNumber::f16, CudaNumber::f32};

GatedNumber as_gated(CudaNumber number) {
  if (number == CudaNumber::f32) return GatedNumber::f32;
  return number == CudaNumber::bf16 ? GatedNumber::bf16 : GatedNumber::f16;
}

Array floats(std::int64_t count, float scale) { return {GatedNumber::f32, count, scale}; }

template <class Number>
class Uploaded {
 public:
  explicit Uploaded(const std::vector<Number>& from)
      : memory_(static_cast<Bytes>(from.size() * sizeof(Number))) {
    memory_.upload(from);
  }
  Number* data() { return reinterpret_cast<Number*>(memory_.data()); }

 private:
  DeviceMemory memory_;
};

bool losses(std::int64_t rows, std::int64_t columns) {
  const Array outputs = floats(rows * columns, 1), gradient = floats(rows * columns, 0),
              each = floats(rows, 0), right = floats(rows, 0), wanted = floats(rows * columns, 1);
  std::vector<std::int32_t> classes(static_cast<std::size_t>(rows));
  for (std::size_t i = 0; i < classes.size(); ++i)
    classes[i] = static_cast<std::int32_t>(i % static_cast<std::size_t>(columns + 1)) - 1;
  Uploaded<std::int32_t> targets(classes);
  Uploaded<double> sums(std::vector<double>(3 * kSums, 0));
  CudaLosses given{outputs.floats(),  rows,          columns,       0.5F,
                   gradient.floats(), each.floats(), right.floats()};
  cuda_cross_entropy(given, targets.data(), nullptr);
  cuda_score_sums(sums.data(), given, nullptr);
  if (!finished("cross entropy", {&gradient, &each, &right})) return false;
  cuda_squared_error(given, wanted.floats(), nullptr);
  cuda_square_sums(sums.data(), gradient.floats(), rows * columns, nullptr);
  return finished("squared error", {&gradient, &each, &right});
}

bool optimisers(std::int64_t count) {
  const Array values = floats(count, 1), gradient = floats(count, 1), first = floats(count, 1),
              second = floats(count, 1);
  cuda_sgd({.rate = 0.1F}, values.floats(), gradient.floats(), nullptr, count, nullptr);
  cuda_sgd({.momentum = 0.9F, .rate = 0.1F}, values.floats(), gradient.floats(), first.floats(),
           count, nullptr);
  Array squares = floats(count, 1);
  cuda_add(CudaNumber::f32, squares.at(), second.floats(), second.floats(), count, nullptr);
  cuda_fill(CudaNumber::f32, squares.at(), 0.25F, count, nullptr);
  cuda_adam({.beta1 = 0.9F,
             .beta2 = 0.99F,
             .rest1 = 0.1F,
             .rest2 = 0.01F,
             .epsilon = 1e-8F,
             .rate = 0.1F},
            values.floats(), gradient.floats(), first.floats(), squares.floats(), count, nullptr);
  const Array decays = floats(count, 0);
  cuda_decays(decays.floats(), squares.floats(), count, nullptr);
  cuda_of_decays(gradient.floats(), decays.floats(), count, nullptr);
  return finished("optimisers", {&values, &first, &squares, &decays, &gradient});
}

bool arrays(CudaNumber number, std::int64_t rows, std::int64_t columns) {
  const GatedNumber gated = as_gated(number);
  const Array numbers(gated, rows * columns, 0), from = floats(rows * columns, 1);
  cuda_convert({number, numbers.at(), columns}, {CudaNumber::f32, from.at(), columns}, rows,
               columns, nullptr);
  if (!finished("convert", {&numbers})) return false;
  const Array added(gated, rows * columns, 0), row(gated, columns, 1);
  cuda_add(number, added.at(), from.floats(), nullptr, rows * columns, nullptr);
  cuda_repeat(number, added.at(), row.at(), rows, columns, nullptr);
  const std::size_t words = static_cast<std::size_t>(rows * ((columns + 63) / 64));
  Uploaded<std::uint64_t> bits(std::vector<std::uint64_t>(words, 0xA5A5A5A5A5A5A5A5ULL));
  const Array spikes(gated, rows * columns, 0);
  cuda_expand_bits(number, spikes.at(), bits.data(), rows, columns, nullptr);
  return finished("arrays", {&added, &spikes});
}

// Every third place of each row but the second, which has none.
bool places(CudaNumber number, std::int64_t rows, std::int64_t width) {
  std::vector<std::int64_t> starts = {0};
  std::vector<std::int32_t> columns;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = r % 3; r != 1 && c < width; c += 3)
      columns.push_back(static_cast<std::int32_t>(c));
    starts.push_back(static_cast<std::int64_t>(columns.size()));
  }
  Uploaded<std::int64_t> from(starts);
  Uploaded<std::int32_t> at(columns);
  const CudaPlaces all{from.data(), at.data(), rows, width};
  const auto count = static_cast<std::int64_t>(columns.size());
  const Array numbers = floats(count, 1), whole = floats(rows * width, 1), back = floats(count, 0);
  const Array matrix(as_gated(number), rows * width, 1);
  cuda_scatter(number, matrix.at(), all, numbers.floats(), nullptr);
  cuda_gather(back.floats(), all, whole.floats(), nullptr);
  return finished("places", {&matrix, &back});
}

bool leaky(const LeakyShape& s, bool wants_all) {
  const std::int64_t state = s.batch * s.outputs, rows = s.steps * state;
  const Array decays = floats(s.outputs, 0.9F), before = floats(state, 1),
              outputs = floats(rows, 1), after = floats(state, 0), of_outputs = floats(rows, 1),
              of_after = floats(state, 1), of_sums = floats(rows, 0), of_before = floats(state, 0),
              of_decays = floats(state, 0);
  leaky_forward(s, decays.floats(), before.floats(), outputs.floats(), after.floats(), nullptr);
  leaky_backward(s,
                 {decays.floats(), before.floats(), outputs.floats(),
                  wants_all ? of_outputs.floats() : nullptr, of_after.floats(), of_sums.floats(),
                  of_before.floats(), wants_all ? of_decays.floats() : nullptr},
                 nullptr);
  if (!finished("leaky", {&outputs, &after, &of_sums, &of_before})) return false;
  return !wants_all || finished("leaky, decays", {&of_decays});
}

int run_all() {
  int ran = 0, failed = 0;
  const auto count = [&](const char* what, bool good) {
    ++ran;
    if (good) return;
    ++failed;
    std::printf("%s: results are not finite\n", what);
  };
  for (const std::int64_t rows : {1, 31, 1000}) {
    for (const std::int64_t columns : {1, 7, 65, 256, 1500}) count("losses", losses(rows, columns));
  }
  for (const std::int64_t numbers : {1, 255, 100'003}) count("optimisers", optimisers(numbers));
  for (const CudaNumber number : kNumbers) {
    count("arrays", arrays(number, 3, 130));
    count("arrays", arrays(number, 257, 33));
    count("places", places(number, 2, 5));
    count("places", places(number, 96, 64));
  }
  for (const bool wants_all : {false, true}) {
    count("leaky", leaky({1, 1, 1}, wants_all));
    count("leaky", leaky({9, 37, 11}, wants_all));
  }
  return told("calls", ran, failed);
}

}  // namespace
}  // namespace ebb

int main() { return ebb::run_program(ebb::run_all); }
