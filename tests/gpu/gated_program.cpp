// SPDX-License-Identifier: Apache-2.0
// Every kind of kernel for gated cells over a few time steps, for compute-sanitizer (./dev cuda sanitize). Results must be numbers;
// whether they are right is tested from Python.
#include <array>
#include <cstdint>
#include <cstdio>
#include <string>

#include "ebb/cell/gated.h"
#include "tests/gpu/gpu_program.h"

namespace ebb {
namespace {

// Forward, forward recorded, recalled, backward.
bool runs(const GatedShape& s) {
  const bool lstm = s.cell == GatedCell::lstm, gru = s.cell == GatedCell::gru,
             egru = s.cell == GatedCell::egru, has_c = lstm || egru, apart = gru || egru;
  const std::int64_t gates = lstm    ? 4
                             : apart ? 3
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
              products = numbers(rows, 0), thresholds = floats(s.hidden, 0.3F),
              thresholds_gradient = floats(state, 0);
  GatedForward forward;
  forward.weights = weights.at();
  forward.bias = apart ? bias.at() : nullptr;
  forward.sums = sums.at();
  forward.before = before.at();
  forward.field_before = has_c || gru ? field_before.floats() : nullptr;
  forward.outputs = outputs.at();
  forward.field_after = has_c || gru ? field_after.floats() : nullptr;
  forward.thresholds = egru ? thresholds.floats() : nullptr;
  gated_forward(s, forward, false, nullptr);
  if (!finished("forward", {&outputs})) return false;
  forward.fields = has_c ? fields.floats() : nullptr;
  forward.products = apart ? products.at() : nullptr;
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
  backward.field_gradient = has_c ? field_gradient.floats() : nullptr;
  backward.sums_gradient = sums_gradient.at();
  backward.inputs_gradient = apart ? sums.at() : sums_gradient.at();
  backward.before_gradient = before_gradient.floats();
  backward.field_before_gradient = has_c ? field_before_gradient.floats() : nullptr;
  backward.thresholds = forward.thresholds;
  backward.thresholds_gradient = egru ? thresholds_gradient.floats() : nullptr;
  backward.sharpness = 0.3F;
  gated_backward(s, backward, nullptr);
  return finished("backward", {&sums_gradient, &before_gradient}) &&
         (!egru || finished("backward", {&field_before_gradient, &thresholds_gradient}));
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
  return shape.cell != GatedCell::rnn_tanh && shape.cell != GatedCell::rnn_relu &&
         size_of(shape.number) == 2 && shape.hidden >= 256;
}

// Says what fails.
bool passes(const GatedShape& shape) {
  constexpr std::array kCells = {"lstm", "gru", "rnn_tanh", "rnn_relu", "egru"};
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
  for (const GatedCell cell : {GatedCell::lstm, GatedCell::gru, GatedCell::rnn_tanh,
                               GatedCell::rnn_relu, GatedCell::egru}) {
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
  return told("segments", ran, failed);
}

}  // namespace
}  // namespace ebb

int main() { return ebb::run_program(ebb::run_all); }
