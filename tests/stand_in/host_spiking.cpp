// SPDX-License-Identifier: Apache-2.0
// Spiking cells over a segment as ebb/cell/spiking.h says, unit by unit on the host: for the device that the host plays.
#include <string>
#include <vector>

#include "ebb/cell/adlif_math.h"
#include "ebb/cell/alif_math.h"
#include "ebb/cell/lif_math.h"
#include "ebb/cell/spiking.h"
#include "tests/stand_in/host_device.h"
#include "tests/stand_in/host_numbers.h"
#include "tests/stand_in/host_queue.h"

namespace ebb {
namespace {

using test::read;
using test::write;

template <class Cell>
struct Host {
  static constexpr int kFields = Cell::kFields, kParameters = Cell::kParameters;
  static constexpr bool kMembrane = Cell::kSaved > 0;  // what is kept of a lif, and else the fields

  SpikingShape shape;
  GatedNumber number = shape.number;
  std::int64_t hidden = shape.hidden, state = shape.batch * hidden, rows = shape.steps * state;

  struct Unit {
    float parameters[kParameters], fields[kFields];
  };
  Unit unit_at(const float* parameters, const float* fields, std::int64_t at) const {
    Unit found;
    for (int k = 0; k < kParameters; ++k)
      found.parameters[k] = parameters[k * hidden + at % hidden];
    for (int k = 0; k < kFields; ++k) found.fields[k] = fields[k * state + at];
    return found;
  }
  float spike_before(const void* before, const void* outputs, std::int64_t t,
                     std::int64_t at) const {
    return t == 0 ? read(number, before, at) : read(number, outputs, (t - 1) * state + at);
  }
  // A time step, whose spike may be known. Returns it.
  float step(Unit& unit, float sum, float before, const float* known, float* kept) const {
    float after[kFields], saved[1] = {};
    UnitForward<float> own{&sum, unit.fields, before, unit.parameters, after, saved, 0};
    Cell::forward(own, shape.constants);
    const float spike = known == nullptr ? own.spike : *known;
    if (kMembrane && spike != own.spike) {
      const Constants<float>& c = shape.constants;
      after[0] =
          saved[0] - spike * (c.hard * (saved[0] - c.rest) + (1 - c.hard) * unit.parameters[0]);
    }
    for (int k = 0; k < kFields; ++k) unit.fields[k] = after[k];
    if (kept != nullptr) {
      for (int k = 0; k < kFields; ++k) kept[k] = kMembrane ? saved[0] : after[k];
    }
    return spike;
  }

  void forward(const SpikingForward& g) const {
    std::vector<Unit> units;
    for (std::int64_t at = 0; at < state; ++at)
      units.push_back(unit_at(g.parameters, g.fields_before, at));
    for (std::int64_t t = 0; t < shape.steps; ++t) {
      for (std::int64_t at = 0; at < state; ++at) {
        const std::int64_t b = at / hidden, u = at % hidden;
        float sum = 0;
        for (std::int64_t i = 0; shape.recurrent && i < hidden; ++i) {
          sum += spike_before(g.before, g.outputs, t, b * hidden + i) *
                 read(number, g.weights, u * hidden + i);
        }
        sum += read(number, g.sums, t * state + at);
        const float before = spike_before(g.before, g.outputs, t, at);
        write(number, g.outputs, t * state + at,
              step(units[static_cast<std::size_t>(at)], sum, before, nullptr, nullptr));
      }
    }
    for (std::int64_t at = 0; at < state; ++at) {
      for (int k = 0; k < kFields; ++k)
        g.fields_after[k * state + at] = units[static_cast<std::size_t>(at)].fields[k];
    }
  }

  void recall(const SpikingRecall& g) const {
    for (std::int64_t at = 0; at < state; ++at) {
      Unit unit = unit_at(g.parameters, g.fields_before, at);
      for (std::int64_t t = 0; t < shape.steps; ++t) {
        const float known = read(number, g.outputs, t * state + at);
        float kept[kFields];
        step(unit, read(number, g.sums, t * state + at), spike_before(g.before, g.outputs, t, at),
             &known, kept);
        for (int k = 0; k < kFields; ++k) g.kept[k * rows + t * state + at] = kept[k];
      }
    }
  }

  void backward(const SpikingBackward& g) const {
    std::vector<float> made;
    const float* kept = g.kept;
    if (!shape.recurrent) {
      for (std::int64_t i = 0; i < spiking_kept(shape); ++i) g.kept[i] = 0;  // it must be there
      made.resize(static_cast<std::size_t>(kFields * rows));
      SpikingRecall whole;
      whole.parameters = g.parameters;
      whole.sums = g.sums;
      whole.before = g.before;
      whole.outputs = g.outputs;
      whole.fields_before = g.fields_before;
      whole.kept = made.data();
      recall(whole);
      kept = made.data();
    }
    const auto size = static_cast<std::size_t>(state);
    std::vector<float> of_spikes(g.after_gradient, g.after_gradient + state),
        adjoint(g.fields_gradient, g.fields_gradient + kFields * state),
        of_parameters(kParameters * size);
    for (std::int64_t t = shape.steps - 1; t >= 0; --t) {
      for (std::int64_t at = 0; at < state; ++at)
        reverse_unit(g, kept, t, at, of_spikes, adjoint, of_parameters);
      for (std::int64_t at = 0; shape.recurrent && at < state; ++at) {
        for (std::int64_t i = 0; i < hidden; ++i) {
          of_spikes[static_cast<std::size_t>(at)] +=
              read(number, g.sums_gradient, t * state + at / hidden * hidden + i) *
              read(number, g.weights, i * hidden + at % hidden);
        }
      }
    }
    for (std::size_t i = 0; i < size; ++i) g.before_gradient[i] = of_spikes[i];
    for (std::size_t i = 0; i < adjoint.size(); ++i) g.fields_before_gradient[i] = adjoint[i];
    for (std::size_t i = 0; g.parameters_gradient != nullptr && i < of_parameters.size(); ++i)
      g.parameters_gradient[i] = of_parameters[i];
  }

  void reverse_unit(const SpikingBackward& g, const float* kept, std::int64_t t, std::int64_t at,
                    std::vector<float>& of_spikes, std::vector<float>& adjoint,
                    std::vector<float>& of_parameters) const {
    Unit unit = unit_at(g.parameters, g.fields_before, at);
    const float before = spike_before(g.before, g.outputs, t, at);
    float now[kFields], saved[1] = {}, own_adjoint[kFields], own_parameters[kParameters] = {}, sum;
    for (int k = 0; k < kFields; ++k) {
      now[k] = kept[k * rows + t * state + at];
      if (t > 0) unit.fields[k] = kept[k * rows + (t - 1) * state + at];
      own_adjoint[k] = adjoint[static_cast<std::size_t>(k * state + at)];
    }
    if (kMembrane) {
      saved[0] = now[0];
      const Constants<float>& c = shape.constants;
      if (t > 0) {
        unit.fields[0] -=
            before * (c.hard * (unit.fields[0] - c.rest) + (1 - c.hard) * unit.parameters[0]);
      }
    }
    float output = of_spikes[static_cast<std::size_t>(at)];
    if (g.outputs_gradient != nullptr) output += read(number, g.outputs_gradient, t * state + at);
    const float slope =
        slope_at(shape.surrogate,
                 Cell::distance(static_cast<const float*>(saved), static_cast<const float*>(now),
                                static_cast<const float*>(unit.parameters)),
                 shape.constants.sharpness);
    UnitBackward<float> own{unit.fields,     now,    saved,       before, slope,
                            unit.parameters, output, own_adjoint, &sum,   own_parameters};
    Cell::backward(own, shape.constants);
    of_spikes[static_cast<std::size_t>(at)] = own.output;
    for (int k = 0; k < kFields; ++k)
      adjoint[static_cast<std::size_t>(k * state + at)] = own_adjoint[k];
    for (int k = 0; k < kParameters; ++k)
      of_parameters[static_cast<std::size_t>(k * state + at)] += own_parameters[k];
    write(number, g.sums_gradient, t * state + at, sum);
  }
};

template <class F>
void with_cell(SpikingCell cell, const F& f) {
  if (cell == SpikingCell::lif) return f.template operator()<LifMath<false>>();
  if (cell == SpikingCell::alif) return f.template operator()<AlifMath>();
  return f.template operator()<AdlifMath>();
}

std::int64_t most_units = test::kAnyUnits;

}  // namespace

void test::set_most_units(std::int64_t units) { most_units = units; }

std::string spiking_unfit(const SpikingShape& shape) {
  const std::int64_t each = units_together(shape.number);
  if (!shape.recurrent) return {};
  if (shape.hidden % each != 0) return "hidden must be a multiple of " + std::to_string(each);
  return shape.hidden <= most_units ? "" : "the recurrent weights do not fit";
}
void spiking_forward(const SpikingShape& shape, const SpikingForward& given, void* stream) {
  const auto work = [=] {
    with_cell(shape.cell, [&]<class Cell>() { Host<Cell>{shape}.forward(given); });
  };
  test::queue_of(stream)->add(work, test::kForwardSeconds);
}
void spiking_recall(const SpikingShape& shape, const SpikingRecall& given, void* stream) {
  test::queue_of(stream)->add(
      [=] { with_cell(shape.cell, [&]<class Cell>() { Host<Cell>{shape}.recall(given); }); });
}
void spiking_backward(const SpikingShape& shape, const SpikingBackward& given, void* stream) {
  const auto work = [=] {
    with_cell(shape.cell, [&]<class Cell>() { Host<Cell>{shape}.backward(given); });
  };
  test::queue_of(stream)->add(work, test::kBackwardSeconds);
}

}  // namespace ebb
