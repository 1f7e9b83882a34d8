// SPDX-License-Identifier: Apache-2.0
// Every kind of kernel for spiking cells over a few time steps, as gated_program.cpp has those of gated ones.
#include <array>
#include <cstdint>
#include <cstdio>
#include <string>

#include "ebb/cell/spiking.h"
#include "tests/gpu/gpu_program.h"

namespace ebb {
namespace {

// Forward, recalled, backward.
bool runs(const SpikingShape& s) {
  const std::int64_t fields = s.cell == SpikingCell::lif ? 1 : 2,
                     parameters = s.cell == SpikingCell::adlif ? 5 : 2 * fields,
                     state = s.batch * s.hidden, rows = s.steps * state;
  const auto numbers = [&](std::int64_t count, float scale) {
    return Array(s.number, count, scale);
  };
  const auto floats = [](std::int64_t count, float scale) {
    return Array(GatedNumber::f32, count, scale);
  };
  const Array weights = numbers(s.hidden * s.hidden, 1 / static_cast<float>(s.hidden)),
              given = floats(parameters * s.hidden, 0.3F), sums = numbers(rows, 1),
              before = numbers(state, 1), fields_before = floats(fields * state, 1),
              outputs = numbers(rows, 0), fields_after = floats(fields * state, 0),
              kept = floats(spiking_kept(s), 0);
  SpikingForward forward;
  forward.weights = s.recurrent ? weights.at() : nullptr;
  forward.parameters = given.floats();
  forward.sums = sums.at();
  forward.before = before.at();
  forward.fields_before = fields_before.floats();
  forward.outputs = outputs.at();
  forward.fields_after = fields_after.floats();
  spiking_forward(s, forward, nullptr);
  if (!finished("forward", {&outputs, &fields_after})) return false;
  if (s.recurrent) {
    SpikingRecall recall;
    recall.parameters = given.floats();
    recall.sums = sums.at();
    recall.before = before.at();
    recall.outputs = outputs.at();
    recall.fields_before = fields_before.floats();
    recall.kept = kept.floats();
    spiking_recall(s, recall, nullptr);
    if (!finished("recalled", {&kept})) return false;
  }
  const Array outputs_gradient = numbers(rows, 1), after_gradient = floats(state, 1),
              fields_gradient = floats(fields * state, 1), sums_gradient = numbers(rows, 0),
              before_gradient = floats(state, 0),
              fields_before_gradient = floats(fields * state, 0),
              parameters_gradient = floats(parameters * state, 0);
  SpikingBackward backward;
  backward.weights = forward.weights;
  backward.parameters = given.floats();
  backward.sums = sums.at();
  backward.kept = kept.floats();
  backward.outputs = outputs.at();
  backward.before = before.at();
  backward.fields_before = fields_before.floats();
  backward.outputs_gradient = outputs_gradient.at();
  backward.after_gradient = after_gradient.floats();
  backward.fields_gradient = fields_gradient.floats();
  backward.sums_gradient = sums_gradient.at();
  backward.before_gradient = before_gradient.floats();
  backward.fields_before_gradient = fields_before_gradient.floats();
  backward.parameters_gradient = parameters_gradient.floats();
  spiking_backward(s, backward, nullptr);
  return finished("backward", {&sums_gradient, &before_gradient, &fields_before_gradient,
                               &parameters_gradient});
}

struct Sizes {
  std::int64_t steps, batch, hidden;
  bool recurrent;
};
// As those of gated_program.cpp; without recurrent weights any number of units, in one stretch of time steps or several.
constexpr std::array kSizes = {Sizes{3, 5, 32, true},    Sizes{2, 37, 96, true},
                               Sizes{2, 150, 512, true}, Sizes{2, 40, 1024, true},
                               Sizes{9, 3, 65, false},   Sizes{70, 2, 33, false}};

constexpr std::array kCells = {"lif", "alif", "adlif"};

int run_all() {
  set_gated_patience(std::int64_t{1} << 40);
  int ran = 0, failed = 0;
  for (const SpikingCell cell : {SpikingCell::lif, SpikingCell::alif, SpikingCell::adlif}) {
    for (const GatedNumber number :
         {GatedNumber::bf16, GatedNumber::f16, GatedNumber::tf32, GatedNumber::f32}) {
      for (const Sizes& sizes : kSizes) {
        SpikingShape shape;
        shape.cell = cell;
        shape.number = number;
        shape.steps = sizes.steps;
        shape.batch = sizes.batch;
        shape.hidden = sizes.hidden;
        shape.recurrent = sizes.recurrent;
        shape.constants.sharpness = 5;
        const std::string why_not = spiking_unfit(shape);
        ++ran;
        if (why_not.empty() && runs(shape)) continue;
        ++failed;
        std::printf("%s, %d samples of %d units: %s\n", kCells[static_cast<std::size_t>(cell)],
                    static_cast<int>(shape.batch), static_cast<int>(shape.hidden),
                    why_not.empty() ? "results are not finite" : why_not.c_str());
      }
    }
  }
  return told("segments", ran, failed);
}

}  // namespace
}  // namespace ebb

int main() { return ebb::run_program(ebb::run_all); }
