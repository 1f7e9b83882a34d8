// SPDX-License-Identifier: Apache-2.0
// Gated cells over a segment as ebb/cell/gated.h says, unit by unit on the host: for the device that the host plays.
#include <algorithm>
#include <string>
#include <vector>

#include "ebb/cell/egru_math.h"
#include "ebb/cell/gated.h"
#include "ebb/cell/gru_math.h"
#include "ebb/cell/lstm_math.h"
#include "ebb/cell/rnn_math.h"
#include "ebb/core/error.h"
#include "tests/stand_in/host_device.h"
#include "tests/stand_in/host_numbers.h"
#include "tests/stand_in/host_queue.h"

namespace ebb {
namespace {

using test::read;
using test::write;

template <class Cell>
struct Host {
  static constexpr int kGates = Cell::kGates;
  static constexpr bool kApart = Cell::kSums > Cell::kGates, kField = Cell::kFields > 1,
                        kHeard = Cell::kEvents;

  GatedShape shape;
  GatedNumber number = shape.number;
  std::int64_t hidden = shape.hidden, width = kGates * hidden;

  void forward(const GatedForward& g, bool record) const {
    std::vector<float> fields(static_cast<std::size_t>(shape.batch * hidden));
    for (std::int64_t i = 0; (kField || kApart) && i < shape.batch * hidden; ++i)
      fields[static_cast<std::size_t>(i)] = g.field_before[i];
    for (std::int64_t t = 0; t < shape.steps; ++t) {
      for (std::int64_t b = 0; b < shape.batch; ++b) {
        for (std::int64_t u = 0; u < hidden; ++u) unit(g, record, t, b, u, fields);
      }
    }
    for (std::int64_t i = 0; (kField || kApart) && i < shape.batch * hidden; ++i)
      g.field_after[i] = fields[static_cast<std::size_t>(i)];
  }

  float h_before(const GatedForward& g, std::int64_t t, std::int64_t at) const {
    return t == 0 ? read(number, g.before, at)
                  : read(number, g.outputs, (t - 1) * shape.batch * hidden + at);
  }

  void unit(const GatedForward& g, bool record, std::int64_t t, std::int64_t b, std::int64_t u,
            std::vector<float>& fields) const {
    const std::int64_t row = t * shape.batch + b;
    float sums[4], after[2], saved[4];
    for (std::int64_t k = 0; k < kGates; ++k) {
      float product = 0;
      for (std::int64_t i = 0; i < hidden; ++i) {
        product +=
            h_before(g, t, b * hidden + i) * read(number, g.weights, (k * hidden + u) * hidden + i);
      }
      sums[k] = read(number, g.sums, row * width + k * hidden + u);
      if (kApart && k == kGates - 1) {
        sums[3] = product + (g.bias == nullptr ? 0 : read(number, g.bias, u));
      } else {
        sums[k] += product;
      }
    }
    float& field = fields[static_cast<std::size_t>(b * hidden + u)];
    float before[2] = {kHeard ? h_before(g, t, b * hidden + u) : field, field};
    const float* const threshold = kHeard ? g.thresholds + u : nullptr;
    UnitForward<float> own{sums, before, 0, threshold, after, saved, 0};
    Cell::forward(own, Constants<float>());
    field = kField ? after[1] : after[0];
    write(number, g.outputs, row * hidden + u, after[0]);
    if (!record) return;
    for (std::int64_t k = 0; k < std::min(Cell::kSaved, kGates); ++k)
      write(number, g.sums, row * width + k * hidden + u, saved[k]);
    if (kApart) write(number, g.products, row * hidden + u, saved[3]);
    if (kField) g.fields[row * hidden + u] = field;
  }

  void backward(const GatedBackward& g) const {
    const auto size = static_cast<std::size_t>(shape.batch * hidden);
    std::vector<float> of_h(g.after_gradient, g.after_gradient + size), of_field(size),
        of_threshold(size);
    if (kField) of_field.assign(g.field_gradient, g.field_gradient + size);
    for (std::int64_t t = shape.steps - 1; t >= 0; --t) {
      for (std::int64_t b = 0; b < shape.batch; ++b) {
        for (std::int64_t u = 0; u < hidden; ++u)
          reverse_unit(g, t, b, u, of_h, of_field, of_threshold);
      }
      for (std::int64_t b = 0; b < shape.batch; ++b) {
        for (std::int64_t u = 0; u < hidden; ++u) {
          const std::int64_t row = t * shape.batch + b;
          float& to = of_h[static_cast<std::size_t>(b * hidden + u)];
          for (std::int64_t k = 0; k < width; ++k)
            to += read(number, g.sums_gradient, row * width + k) *
                  read(number, g.weights, k * hidden + u);
        }
      }
    }
    for (std::size_t i = 0; i < size; ++i) {
      g.before_gradient[i] = of_h[i];
      if (kField) g.field_before_gradient[i] = of_field[i];
      if (kHeard && g.thresholds_gradient != nullptr) g.thresholds_gradient[i] = of_threshold[i];
    }
  }

  void reverse_unit(const GatedBackward& g, std::int64_t t, std::int64_t b, std::int64_t u,
                    std::vector<float>& of_h, std::vector<float>& of_field,
                    std::vector<float>& of_threshold) const {
    const std::int64_t row = t * shape.batch + b, now = row * hidden + u, last = b * hidden + u;
    float before[2] = {}, after[2] = {}, saved[4] = {}, sums[4] = {};
    for (std::int64_t k = 0; k < std::min(Cell::kSaved, kGates); ++k)
      saved[k] = read(number, g.gates, row * width + k * hidden + u);
    if (kApart) saved[3] = read(number, g.products, now);
    if (kField) {
      after[1] = g.fields[now];
      before[1] = t == 0 ? g.field_before[last] : g.fields[now - shape.batch * hidden];
    } else if (kApart) {
      before[0] = t == 0 ? read(number, g.before, last)
                         : read(number, g.outputs, now - shape.batch * hidden);
    } else {
      after[0] = read(number, g.outputs, now);
    }
    float output = of_h[static_cast<std::size_t>(last)];
    if (g.outputs_gradient != nullptr) output += read(number, g.outputs_gradient, now);
    float adjoint[2] = {0, of_field[static_cast<std::size_t>(last)]};
    UnitBackward<float> own{before, after, saved, 0, 0, nullptr, output, adjoint, sums, nullptr};
    if (kHeard) {
      own.parameters = g.thresholds + u;
      own.of_parameters = &of_threshold[static_cast<std::size_t>(last)];
      own.slope = slope_at(g.surrogate, after[1] - g.thresholds[u], g.sharpness);
    }
    Cell::backward(own, Constants<float>());
    of_h[static_cast<std::size_t>(last)] = own.output;
    of_field[static_cast<std::size_t>(last)] = adjoint[1];
    for (std::int64_t k = 0; k < kGates; ++k) {
      const bool apart = kApart && k == kGates - 1;
      const std::int64_t at = row * width + k * hidden + u;
      write(number, g.sums_gradient, at, sums[apart ? 3 : k]);
      if (kApart) write(number, g.inputs_gradient, at, sums[k]);
    }
  }
};

template <class F>
void with_cell(GatedCell cell, const F& f) {
  if (cell == GatedCell::lstm) return f.template operator()<LstmMath>();
  if (cell == GatedCell::gru) return f.template operator()<GruMath>();
  if (cell == GatedCell::egru) return f.template operator()<EgruMath>();
  if (cell == GatedCell::rnn_tanh) return f.template operator()<RnnMath<false>>();
  return f.template operator()<RnnMath<true>>();
}

}  // namespace

std::string gated_unfit(const GatedShape& shape) {
  const std::int64_t each = units_together(shape.number);
  if (shape.hidden % each == 0) return {};
  return "hidden must be a multiple of " + std::to_string(each);
}
void gated_forward(const GatedShape& shape, const GatedForward& given, bool record, void* stream) {
  const auto work = [=] {
    with_cell(shape.cell, [&]<class Cell>() { Host<Cell>{shape}.forward(given, record); });
  };
  test::queue_of(stream)->add(work, test::kForwardSeconds);
}
void gated_backward(const GatedShape& shape, const GatedBackward& given, void* stream) {
  const auto work = [=] {
    with_cell(shape.cell, [&]<class Cell>() { Host<Cell>{shape}.backward(given); });
  };
  test::queue_of(stream)->add(work, test::kBackwardSeconds);
}
void set_gated_patience(std::int64_t) {}
void set_gated_registers(bool) {}

}  // namespace ebb
