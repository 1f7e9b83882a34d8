// SPDX-License-Identifier: Apache-2.0
// Every kind of kernel for gated cells over a few time steps, for compute-sanitizer (./dev cuda sanitize). Each array is an allocation
// of its own, as long as the contract says, so that an access beyond it is seen. Results must be numbers; whether they are right is
// tested from Python.
#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <random>
#include <string>
#include <vector>

#include "ebb/cell/gated.h"
#include "ebb/core/error.h"

namespace ebb {
namespace {

void check(cudaError_t status, const char* call) {
  if (status != cudaSuccess) fail(ErrorCode::device, call, ": ", cudaGetErrorString(status));
}

std::size_t size_of(GatedNumber number) { return static_cast<std::size_t>(bytes_of(number)); }

// The value in a number's format, whose bits are the lowest; it must not be tiny.
std::uint32_t bits_of(GatedNumber number, float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, 4);
  if (size_of(number) == 4) return bits;
  if (number == GatedNumber::bf16) return bits >> 16;
  const std::uint32_t exponent = (bits >> 23 & 0xFF) - 112;
  return (bits >> 16 & 0x8000) | exponent << 10 | (bits >> 13 & 0x3FF);
}

bool is_finite(GatedNumber number, const unsigned char* at) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, at, size_of(number));
  const std::uint32_t exponent = size_of(number) == 4          ? 0x7F800000
                                 : number == GatedNumber::bf16 ? 0x7F80
                                                               : 0x7C00;
  return (bits & exponent) != exponent;
}

// Memory of the GPU, filled with random numbers of `scale` or, where that is 0, with what is no number.
class Array {
 public:
  Array(GatedNumber number, std::int64_t count, float scale) : number_(number), count_(count) {
    std::vector<unsigned char> content(bytes(), 0xFF);
    static std::mt19937 engine(7);
    std::uniform_real_distribution<float> random(scale / 4, scale);
    if (scale > 0) {
      for (std::int64_t i = 0; i < count; ++i) {
        const std::uint32_t bits =
            bits_of(number, engine() % 2 == 0 ? random(engine) : -random(engine));
        std::memcpy(&content[static_cast<std::size_t>(i) * size_of(number)], &bits,
                    size_of(number));
      }
    }
    check(cudaMalloc(&at_, bytes()), "cudaMalloc");
    check(cudaMemcpy(at_, content.data(), bytes(), cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  ~Array() { cudaFree(at_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  void* at() const { return at_; }
  float* floats() const { return static_cast<float*>(at_); }

  bool all_finite() const {
    std::vector<unsigned char> content(bytes());
    check(cudaMemcpy(content.data(), at_, bytes(), cudaMemcpyDeviceToHost), "cudaMemcpy");
    for (std::size_t i = 0; i < content.size(); i += size_of(number_)) {
      if (!is_finite(number_, &content[i])) return false;
    }
    return true;
  }

 private:
  std::size_t bytes() const { return static_cast<std::size_t>(count_) * size_of(number_); }

  GatedNumber number_;
  std::int64_t count_;
  void* at_ = nullptr;
};

bool finished(const char* what, std::initializer_list<const Array*> results) {
  check(cudaDeviceSynchronize(), what);
  for (const Array* each : results) {
    if (!each->all_finite()) return false;
  }
  return true;
}

// Forward, forward recorded, recalled, backward.
bool runs(const GatedShape& s) {
  const bool lstm = s.cell == GatedCell::lstm, gru = s.cell == GatedCell::gru;
  const std::int64_t gates = lstm  ? 4
                             : gru ? 3
                                   : 1,
                     state = s.batch * s.hidden, rows = s.steps * state;
  const auto numbers = [&](std::int64_t count, float scale) {
    return Array(s.number, count, scale);
  };
  const auto floats = [](std::int64_t count, float scale) {
    return Array(GatedNumber::f32, count, scale);
  };
  const Array weights = numbers(gates * s.hidden * s.hidden, 1 / static_cast<float>(s.hidden)),
              bias = numbers(s.hidden, 1), sums = numbers(gates * rows, 1),
              before = numbers(state, 1), field_before = floats(state, 1),
              outputs = numbers(rows, 0), field_after = floats(state, 0), fields = floats(rows, 0),
              products = numbers(rows, 0);
  GatedForward forward;
  forward.weights = weights.at();
  forward.bias = gru ? bias.at() : nullptr;
  forward.sums = sums.at();
  forward.before = before.at();
  forward.field_before = lstm || gru ? field_before.floats() : nullptr;
  forward.outputs = outputs.at();
  forward.field_after = lstm || gru ? field_after.floats() : nullptr;
  gated_forward(s, forward, false, nullptr);
  if (!finished("forward", {&outputs})) return false;
  forward.fields = lstm ? fields.floats() : nullptr;
  forward.products = gru ? products.at() : nullptr;
  gated_forward(s, forward, true, nullptr);
  if (!finished("recorded", {&outputs, &sums})) return false;
  if (lstm || gru) {
    GatedRecall recall;
    recall.sums = sums.at();
    recall.products = forward.products;
    recall.field_before = lstm ? field_before.floats() : nullptr;
    recall.fields = forward.fields;
    gated_recall(s, recall, nullptr);
    if (!finished("recalled", {&sums})) return false;
  }

  const Array outputs_gradient = numbers(rows, 1), after_gradient = floats(state, 1),
              field_gradient = floats(state, 1), sums_gradient = numbers(gates * rows, 0),
              before_gradient = floats(state, 0), field_before_gradient = floats(state, 0);
  GatedBackward backward;
  backward.weights = weights.at();
  backward.gates = sums.at();
  backward.fields = forward.fields;
  backward.products = forward.products;
  backward.outputs = outputs.at();
  backward.before = before.at();
  backward.field_before = forward.field_before;
  backward.outputs_gradient = outputs_gradient.at();
  backward.after_gradient = after_gradient.floats();
  backward.field_gradient = lstm ? field_gradient.floats() : nullptr;
  backward.sums_gradient = sums_gradient.at();
  backward.inputs_gradient = gru ? sums.at() : sums_gradient.at();
  backward.before_gradient = before_gradient.floats();
  backward.field_before_gradient = lstm ? field_before_gradient.floats() : nullptr;
  gated_backward(s, backward, nullptr);
  return finished("backward", {&sums_gradient, &before_gradient});
}

// On a GPU with 132 multiprocessors these are all ways to spread a layer: 8, 16 or 32 units to a block, weights of 16 bits in registers
// or not (256 units and more), samples in one slice or two, of one team or two, all at a time or in parts.
constexpr std::array kShapes = {
    GatedShape{.steps = 3, .batch = 5, .hidden = 32},
    GatedShape{.steps = 2, .batch = 37, .hidden = 96, .backwards = true},
    GatedShape{.steps = 3, .batch = 9, .hidden = 256, .backwards = true},
    GatedShape{.steps = 2, .batch = 150, .hidden = 512},
    GatedShape{.steps = 2, .batch = 9, .hidden = 768, .backwards = true},
    GatedShape{.steps = 2, .batch = 40, .hidden = 1024}};

bool has_registers(const GatedShape& shape) {
  return shape.cell <= GatedCell::gru && size_of(shape.number) == 2 && shape.hidden >= 256;
}

// Says what fails.
bool passes(const GatedShape& shape) {
  constexpr std::array kCells = {"lstm", "gru", "rnn_tanh", "rnn_relu"};
  constexpr std::array kNumbers = {"bf16", "f16", "tf32", "f32"};
  const std::string why_not = gated_unfit(shape);
  if (why_not.empty() && runs(shape)) return true;
  std::printf("%s %s, %d samples of %d units: %s\n", kCells[static_cast<std::size_t>(shape.cell)],
              kNumbers[static_cast<std::size_t>(shape.number)], static_cast<int>(shape.batch),
              static_cast<int>(shape.hidden),
              why_not.empty() ? "results are not finite" : why_not.c_str());
  return false;
}

int run_all() {
  set_gated_patience(std::int64_t{1} << 40);
  int ran = 0, failed = 0;
  for (const GatedCell cell :
       {GatedCell::lstm, GatedCell::gru, GatedCell::rnn_tanh, GatedCell::rnn_relu}) {
    for (const GatedNumber number :
         {GatedNumber::bf16, GatedNumber::f16, GatedNumber::tf32, GatedNumber::f32}) {
      for (GatedShape shape : kShapes) {
        shape.cell = cell;
        shape.number = number;
        for (const bool registers : {false, true}) {
          if (registers && !has_registers(shape)) continue;
          set_gated_registers(registers);
          ++ran;
          failed += passes(shape) ? 0 : 1;
        }
      }
    }
  }
  std::printf("%d segments, %d failed\n", ran, failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace ebb

int main() {
  try {
    return ebb::run_all();
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}
