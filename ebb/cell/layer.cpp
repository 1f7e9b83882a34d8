// SPDX-License-Identifier: Apache-2.0
#include "ebb/cell/layer.h"

#include <algorithm>
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

const CellRow& row_of(const std::string& cell) {
  for (const CellRow& row : cells()) {
    if (row.name == cell) return row;
  }
  fail(ErrorCode::invalid_argument, "no cell '", cell, "'; there are ", names_of(cells()));
}

CellKind kind_of(const LayerOptions& options) {
  if (options.cell == "lif" && options.synaptic) return CellKind::lif_synaptic;
  constexpr std::pair<const char*, CellKind> kKinds[] = {
      {"rnn", CellKind::rnn},     {"rnn_relu", CellKind::rnn_relu}, {"lstm", CellKind::lstm},
      {"gru", CellKind::gru},     {"lif", CellKind::lif},           {"alif", CellKind::alif},
      {"adlif", CellKind::adlif}, {"egru", CellKind::egru},         {"linear", CellKind::linear},
      {"leaky", CellKind::leaky}};
  for (const auto& [name, kind] : kKinds) {
    if (options.cell == name) return kind;
  }
  fail(ErrorCode::invalid_argument, "no cell '", options.cell, "'; there are ", names_of(cells()));
}

bool is_readout(CellKind kind) { return kind == CellKind::linear || kind == CellKind::leaky; }

std::optional<double> given(const LayerOptions& o, const std::string& name) {
  if (name == "threshold") return o.threshold;
  if (name == "tau_mem") return o.tau_mem;
  if (name == "tau_syn") return o.tau_syn;
  if (name == "tau_adp") return o.tau_adp;
  if (name == "beta") return o.beta;
  return name == "a" ? o.a : o.b;
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
      kind_(kind_of(options)),
      shape_(shape_of(kind_)),
      loops_(loops_of<Number>(kind_)) {
  check();
  choose_surrogate();
  const std::int64_t rows = shape_.gates * options_.hidden;
  input_pattern_ = pattern_of(options_.input_pattern, options_.input_density, rows, options_.input,
                              options_.seed, "input weights");
  connections_.emplace_back(connection(false), input_pattern());
  if (!is_readout(kind_) && options_.recurrent) {
    recurrent_pattern_ = pattern_of(options_.recurrent_pattern, options_.recurrent_density, rows,
                                    options_.hidden, options_.seed + 1, "recurrent weights");
    connections_.emplace_back(connection(true), recurrent_pattern());
  }
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
  if (!options_.recurrent && !shape_.events && !is_readout(kind_)) {
    fail(ErrorCode::invalid_argument, what,
         ": recurrent is false; only cells that spike can be so");
  }
  if (!shape_.spikes && (options_.gradient_threshold || options_.max_activity < 1)) {
    fail(ErrorCode::invalid_argument, what,
         ": gradient_threshold and max_activity are for cells that spike");
  }
  if (options_.synaptic && options_.cell != "lif") {
    fail(ErrorCode::invalid_argument, what, ": synaptic is for lif");
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
  const std::vector<UnitParameter>& parameters = row_of(options_.cell).parameters;
  for (const char* name : {"threshold", "tau_mem", "tau_syn", "tau_adp", "beta", "a", "b"}) {
    const bool has = std::any_of(parameters.begin(), parameters.end(),
                                 [name](const UnitParameter& own) { return own.name == name; });
    const bool used = has && (std::string_view(name) != "tau_syn" || options_.synaptic);
    if (given(options_, name) && !used) {
      fail(ErrorCode::invalid_argument, what, " has no ", name, "; leave it out");
    }
  }
  for (const UnitParameter& own : parameters) {
    const double value = given(options_, own.name).value_or(own.value);
    if (!std::isfinite(value) || (own.is_time_constant && !(value > 0))) {
      fail(ErrorCode::invalid_argument, what, ": ", own.name, " is ", value, "; it must be ",
           own.is_time_constant ? "above 0" : "a number");
    }
  }
}

template <class Number>
void Layer<Number>::choose_surrogate() {
  most_ = options_.hidden;
  if (!shape_.events) return;
  const std::string own = kind_ == CellKind::egru ? "triangular" : "fast_sigmoid";
  const std::string& name = options_.surrogate.empty() ? own : options_.surrogate;
  const auto& rows = surrogates();
  const auto row =
      std::find_if(rows.begin(), rows.end(), [&](const auto& r) { return r.name == name; });
  if (row == rows.end()) {
    fail(ErrorCode::invalid_argument, "no surrogate '", name, "'; there are ", names_of(rows));
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
  shape.events = recurrent ? shape_.events : place_.events;
  shape.wants_backward = recurrent || place_.input_gradient;
  return shape;
}

template <class Number>
void Layer<Number>::add_parameter(const char* name, std::vector<std::int64_t> shape) {
  std::int64_t size = 1;
  for (const std::int64_t extent : shape) size *= extent;
  parameters_.push_back({name, std::move(shape), parameter_size_, size, 0, true});
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
  for (const UnitParameter& own : row_of(options_.cell).parameters) {
    if (own.name == "tau_syn" && kind_ != CellKind::lif_synaptic) continue;
    add_parameter(own.name.c_str(), {hidden});
    parameters_.back().value = given(options_, own.name).value_or(own.value);
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
