// SPDX-License-Identifier: Apache-2.0
#include "ebb/cell/layer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>

#include "ebb/core/at.h"
#include "ebb/core/error.h"

namespace ebb {
namespace {

constexpr std::int64_t kMostListed = std::numeric_limits<std::uint16_t>::max();

template <class Rows>
std::string names_of(const Rows& rows) {
  std::string names;
  for (const auto& row : rows) names += (names.empty() ? "" : ", ") + row.name;
  return names;
}

std::size_t cell_of(const LayerOptions& options) {
  bool is_known = false;
  std::string synaptic;
  for (std::size_t c = 0; c < kCellCount; ++c) {
    const CellFacts& own = kCellFacts[c];
    if (own.name == options.cell && own.synaptic == options.synaptic) return c;
    is_known = is_known || own.name == options.cell;
    if (own.synaptic) synaptic.append(synaptic.empty() ? "" : ", ").append(own.name);
  }
  if (is_known) {
    fail(ErrorCode::invalid_argument, "a layer of '", options.cell, "': synaptic is for ",
         synaptic);
  }
  fail(ErrorCode::invalid_argument, "no cell '", options.cell, "'; there are ", names_of(cells()));
}

// The numbers of a unit that a layer may be given.
struct UnitOption {
  std::string_view name;
  std::optional<double> LayerOptions::* given;
};
constexpr std::array kUnitOptions{
    UnitOption{"threshold", &LayerOptions::threshold},
    UnitOption{"tau_mem", &LayerOptions::tau_mem},
    UnitOption{"tau_syn", &LayerOptions::tau_syn},
    UnitOption{"tau_adp", &LayerOptions::tau_adp},
    UnitOption{"beta", &LayerOptions::beta},
    UnitOption{"a", &LayerOptions::a},
    UnitOption{"b", &LayerOptions::b},
};

constexpr bool has(const CellFacts& cell, std::string_view number) {
  return std::ranges::find(cell.units, number, &UnitNumber::name) != cell.units.end();
}

constexpr bool can_be_given(std::string_view number) {
  return std::ranges::count(kUnitOptions, number, &UnitOption::name) > 0;
}

static_assert(
    [] {
      for (const CellFacts& cell : kCellFacts) {
        for (const UnitNumber& own : cell.units) {
          if (!own.name.empty() && !can_be_given(own.name)) return false;
        }
      }
      return true;
    }(),
    "a row has a number of a unit that LayerOptions lacks");

double value_of(const LayerOptions& options, const UnitNumber& number) {
  const auto option = std::ranges::find(kUnitOptions, number.name, &UnitOption::name);
  return (options.*(option->given)).value_or(number.value);
}

std::optional<Pattern> pattern_of(const std::optional<Pattern>& pattern, double density,
                                  std::int64_t rows, std::int64_t columns, std::uint64_t seed,
                                  const char* what) {
  if (pattern) {
    check_pattern(*pattern, rows, columns, what);
    return pattern;
  }
  if (!(density > 0) || density > 1) {
    fail(ErrorCode::invalid_argument, what, ": the density is ", density,
         "; it must be above 0 and up to 1");
  }
  if (density == 1) return {};
  return random_pattern(rows, columns, density, seed);
}

}  // namespace

template <class Number>
Layer<Number>::Layer(const LayerOptions& options, const LayerPlace& place)
    : options_(options),
      place_(place),
      cell_(cell_of(options)),
      shape_(kCellShapes[cell_]),
      loops_(loops_of<Number>(cell_)) {
  check();
  choose_surrogate();
  const std::int64_t rows = shape_.gates * options_.hidden;
  input_pattern_ = pattern_of(options_.input_pattern, options_.input_density, rows, options_.input,
                              options_.seed, "input weights");
  connections_.emplace_back(connection(false), input_pattern());
  if (!facts().is_readout && options_.recurrent) {
    recurrent_pattern_ = pattern_of(options_.recurrent_pattern, options_.recurrent_density, rows,
                                    options_.hidden, options_.seed + 1, "recurrent weights");
    connections_.emplace_back(connection(true), recurrent_pattern());
  }
  // A product with sparse weights has no use for it.
  is_masked_ = is_masked_ && (most_ < options_.hidden || (has_recurrent() && !recurrent_pattern_));
  format_ = SpikeFormat(options_.hidden, most_);
  add_parameters();
}

template <class Number>
void Layer<Number>::check() const {
  const std::string what = described();
  if (options_.hidden < 1 || options_.hidden > 1'000'000) {
    fail(ErrorCode::invalid_argument, what, " has ", options_.hidden,
         " units; there must be 1 to 1000000");
  }
  if (options_.input < 1 || options_.input > 1'000'000) {
    fail(ErrorCode::invalid_argument, what, " has ", options_.input,
         " inputs; there must be 1 to 1000000");
  }
  const bool lists = place_.events || options_.input_density < 1 || options_.input_pattern;
  const bool own_lists =
      shape_.events || options_.recurrent_density < 1 || options_.recurrent_pattern;
  if ((lists && options_.input > kMostListed) || (own_lists && options_.hidden > kMostListed)) {
    fail(ErrorCode::invalid_argument, what, " has ", options_.input, " inputs and ",
         options_.hidden,
         " units; where most outputs are 0 or weights are sparse there may be up to ", kMostListed);
  }
  if (!(options_.max_activity > 0) || options_.max_activity > 1) {
    fail(ErrorCode::invalid_argument, what, ": max_activity is ", options_.max_activity,
         "; it must be above 0 and up to 1");
  }
  check_uses();
  check_parameters();
}

// Options that the cell has no use for.
template <class Number>
void Layer<Number>::check_uses() const {
  const std::string what = described();
  if (!options_.recurrent && !shape_.events && !facts().is_readout) {
    fail(ErrorCode::invalid_argument, what,
         ": recurrent is false; only cells that spike can be so");
  }
  if (!shape_.spikes && (options_.gradient_threshold || options_.max_activity < 1)) {
    fail(ErrorCode::invalid_argument, what,
         ": gradient_threshold and max_activity are for cells that spike");
  }
  if (!shape_.events && (!options_.surrogate.empty() || options_.sharpness)) {
    fail(ErrorCode::invalid_argument, what, " has no surrogate; leave surrogate and sharpness out");
  }
  if (!shape_.events && (options_.hard_reset || options_.attached_reset)) {
    fail(ErrorCode::invalid_argument, what,
         " has no reset; leave hard_reset and attached_reset out");
  }
}

template <class Number>
void Layer<Number>::check_parameters() const {
  const std::string what = described();
  for (const UnitOption& option : kUnitOptions) {
    if ((options_.*(option.given)) && !has(facts(), option.name)) {
      fail(ErrorCode::invalid_argument, what, " has no ", option.name, "; leave it out");
    }
  }
  for (const UnitNumber& own : units()) {
    const double value = value_of(options_, own);
    if (!std::isfinite(value) || (own.is_time_constant() && !(value > 0))) {
      fail(ErrorCode::invalid_argument, what, ": ", own.name, " is ", value, "; it must be ",
           own.is_time_constant() ? "above 0" : "a number");
    }
  }
}

template <class Number>
void Layer<Number>::choose_surrogate() {
  most_ = options_.hidden;
  if (!shape_.events) return;
  const auto& rows = surrogates();
  const auto row = options_.surrogate.empty()
                       ? rows.begin() + static_cast<std::ptrdiff_t>(facts().surrogate)
                       : std::ranges::find(rows, options_.surrogate, &SurrogateRow::name);
  if (row == rows.end()) {
    fail(ErrorCode::invalid_argument, "no surrogate '", options_.surrogate, "'; there are ",
         names_of(rows));
  }
  surrogate_ = static_cast<Surrogate>(row - rows.begin());
  const double sharpness = options_.sharpness.value_or(row->sharpness);
  if (!(sharpness > 0) || !std::isfinite(sharpness)) {
    fail(ErrorCode::invalid_argument, "sharpness is ", sharpness, "; it must be above 0");
  }
  if (options_.max_activity < 1) {
    const double most = options_.max_activity * static_cast<double>(options_.hidden);
    most_ = static_cast<std::int64_t>(most) / 2 * 2;
    if (most_ == 0) {
      fail(ErrorCode::invalid_argument, "max_activity is ", options_.max_activity,
           ", which lets none of ", options_.hidden, " units be heard; it must be ",
           2.0 / static_cast<double>(options_.hidden), " or more");
    }
  }
  is_masked_ = row->is_compact || options_.gradient_threshold || most_ < options_.hidden;
  constants_.hard = options_.hard_reset ? 1 : 0;
  constants_.attached = options_.attached_reset ? 1 : 0;
  constants_.normalised = options_.normalised ? 1 : 0;
  constants_.rest = static_cast<Number>(options_.rest);
  constants_.sharpness = static_cast<Number>(sharpness);
  if (options_.gradient_threshold) {
    constants_.least = static_cast<Number>(*options_.gradient_threshold);
  }
}

template <class Number>
ConnectionShape Layer<Number>::connection(bool recurrent) const {
  ConnectionShape shape;
  shape.gates = shape_.gates;
  shape.units = options_.hidden;
  shape.inputs = recurrent ? options_.hidden : options_.input;
  shape.sums = shape_.sums;
  shape.last_sum = recurrent ? shape_.sums - 1 : shape_.gates - 1;
  // The input comes first; what of the last gate is recurrent may have a sum of its own.
  shape.begun = !recurrent ? 0 : shape_.gates - (shape_.sums > shape_.gates ? 1 : 0);
  shape.events = recurrent ? shape_.events : place_.events;
  shape.ones = recurrent ? shape_.spikes : place_.input_spikes && !place_.scaled;
  shape.wants_backward = recurrent || place_.input_gradient;
  return shape;
}

template <class Number>
void Layer<Number>::add_parameter(std::string_view name, std::vector<std::int64_t> shape) {
  std::int64_t size = 1;
  for (const std::int64_t extent : shape) size *= extent;
  parameters_.push_back({std::string(name), std::move(shape), parameter_size_, size, 0, true});
  parameter_size_ += size;
}

template <class Number>
void Layer<Number>::add_parameters() {
  const std::int64_t hidden = options_.hidden, rows = shape_.gates * hidden;
  const auto weights = [&](const char* name, const Connection<Number>& own, bool sparse,
                           std::int64_t columns) {
    if (sparse) {
      add_parameter(name, {own.weights()});
    } else {
      add_parameter(name, {rows, columns});
    }
  };
  weights("weight_ih", connections_[0], input_pattern_.has_value(), options_.input);
  if (has_recurrent())
    weights("weight_hh", connections_[1], recurrent_pattern_.has_value(), hidden);
  if (options_.bias) {
    add_parameter("bias_ih", {rows});
    if (has_recurrent() && !shape_.spikes) add_parameter("bias_hh", {rows});
  }
  for (const UnitNumber& own : units()) {
    add_parameter(own.name, {hidden});
    parameters_.back().value = value_of(options_, own);
    parameters_.back().learns =
        own.name == "threshold" ? options_.train_threshold : options_.train_tau;
  }
  biases_.resize(at(shape_.sums * hidden));
  unit_parameters_.resize(at(shape_.parameters * hidden));
  of_units_.resize(unit_parameters_.size());
  own_rows_.resize(at(place_.chunk));
}

template <class Number>
const ParameterShape* Layer<Number>::find(const std::string& parameter) const {
  for (const ParameterShape& own : parameters_) {
    if (own.name == parameter) return &own;
  }
  return nullptr;
}

template <class Number>
std::int64_t Layer<Number>::prepared_bytes() const {
  std::int64_t bytes = static_cast<std::int64_t>(
      (biases_.size() + unit_parameters_.size() + of_units_.size()) * sizeof(Number));
  for (const Connection<Number>& own : connections_) bytes += own.prepared_bytes();
  return bytes;
}

template <class Number>
Bytes Layer<Number>::field_bytes() const {
  return place_.batch * shape_.fields * options_.hidden * Bytes{sizeof(Number)};
}

template <class Number>
Bytes Layer<Number>::spike_bytes() const {
  return shape_.spikes ? place_.batch * format_.bytes() : 0;
}

template <class Number>
Bytes Layer<Number>::saved_bytes() const {
  return place_.batch * shape_.saved * options_.hidden * Bytes{sizeof(Number)};
}

template <class Number>
std::int64_t Layer<Number>::grain() const {
  std::int64_t grain = 1;
  for (const Connection<Number>& own : connections_) grain = std::max(grain, own.grain());
  return grain;
}

template <class Number>
void Layer<Number>::prepare(Workers& workers, const Number* parameters) {
  const std::int64_t hidden = options_.hidden;
  connections_[0].prepare(workers, parameters + find("weight_ih")->offset);
  if (has_recurrent()) connections_[1].prepare(workers, parameters + find("weight_hh")->offset);

  std::fill(biases_.begin(), biases_.end(), Number{0});
  for (const auto& [name, recurrent] : {std::pair("bias_ih", false), std::pair("bias_hh", true)}) {
    const ParameterShape* const bias = find(name);
    if (bias == nullptr) continue;
    const int last = connection(recurrent).last_sum;
    for (std::int64_t i = 0; i < bias->size; ++i) {
      const std::int64_t gate = i / hidden;
      const std::int64_t sum = gate == shape_.gates - 1 ? last : gate;
      biases_[at(sum * hidden + i % hidden)] += parameters[bias->offset + i];
    }
  }

  const std::size_t first = parameters_.size() - at(shape_.parameters);
  for (std::int64_t p = 0; p < shape_.parameters; ++p) {
    const ParameterShape& own = parameters_[first + at(p)];
    const bool is_tau = own.name.starts_with("tau");
    for (std::int64_t u = 0; u < hidden; ++u) {
      const Number value = parameters[own.offset + u];
      // A time constant that learning drove below 0 decays at once; one beyond a million steps is
      // cut there, since 1 - decay divides.
      unit_parameters_[at(p * hidden + u)] =
          !is_tau ? value
                  : (value > Number{0} ? std::exp(Number{-1} / std::min(value, Number(1e6)))
                                       : Number{0});
    }
  }
}

template <class Number>
void Layer<Number>::begin() {
  for (Connection<Number>& own : connections_) own.begin();
  std::fill(of_units_.begin(), of_units_.end(), Number{0});
}

template <class Number>
void Layer<Number>::finish(Workers& workers, Number* gradient) {
  connections_[0].finish(workers, gradient + find("weight_ih")->offset);
  if (has_recurrent()) connections_[1].finish(workers, gradient + find("weight_hh")->offset);
  const std::int64_t hidden = options_.hidden;
  const std::size_t first = parameters_.size() - at(shape_.parameters);
  for (std::int64_t p = 0; p < shape_.parameters; ++p) {
    const ParameterShape& own = parameters_[first + at(p)];
    if (!own.learns) continue;
    for (std::int64_t u = 0; u < hidden; ++u) {
      const std::size_t i = at(p * hidden + u);
      Number factor = 1;
      if (own.name.starts_with(
              "tau")) {  // d decay / d tau = decay / tau^2, and tau = -1 / ln decay
        const Number decay = unit_parameters_[i],
                     log = decay > Number{0} ? std::log(decay) : Number{0};
        factor = decay * log * log;
      }
      gradient[own.offset + u] += factor * of_units_[i];
    }
  }
}

template class Layer<float>;
template class Layer<double>;

}  // namespace ebb
