// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <sstream>
#include <utility>

#include "ebb/core/error.h"
#include "ebb/run/compare_runs.h"
#include "ebb/run/numbers.h"
#include "ebb/run/run.h"
#include "ebb/run/verify.h"

namespace ebb {
namespace {

// Something to differentiate by, and the gradient that a run gave for it.
struct Variable {
  std::string name;
  Element element;
  std::span<std::byte> values;
  std::vector<std::byte> gradient;
};

// A value that was changed for a while, whatever the Step throws.
struct PutBack {
  const Variable& variable;
  std::size_t element;
  double kept;
  ~PutBack() { set_number(variable.values, variable.element, element, kept); }
};

// What is not named would be missing from the differences, and its gradient would not be looked at.
void check_named(const Step& step, std::span<const std::byte> adjoint) {
  if (step.steps() == 0) return;
  const std::vector<FieldShape> fields = step.state_fields();
  const Bytes state = step.bytes(0).state;
  if (fields.empty()) {
    fail(
        ErrorCode::invalid_argument,
        "gradient_check: the step has no state_fields(): override it to say which bytes of a state "
        "are numbers, as in `return {{\"state\", Element::f64, 0, ",
        state, "}};`, with Element::byte for those that are none");
  }
  std::vector<bool> in_sum(adjoint.size(), false);
  for (const FieldShape& field : fields) {
    if (part_of(field, adjoint).empty()) continue;
    std::fill_n(in_sum.begin() + field.offset, field.bytes, true);
  }
  for (std::size_t i = 0; i < adjoint.size(); ++i) {
    if (in_sum[i] || adjoint[i] == std::byte{0}) continue;
    fail(ErrorCode::invalid_argument, "gradient_check: the adjoint is not 0 at byte ", i,
         " of the final state, which is in none of the step's state_fields(); make it 0 there, or "
         "check a part of the steps whose last state is made of these fields");
  }
}

class Check {
 public:
  Check(Step& step, const RunOptions& options, std::span<const std::byte> initial,
        std::span<const std::byte> adjoint, const GradientCheckOptions& check)
      : step_(step), check_(check), initial_(initial.begin(), initial.end()), run_(step, options) {
    adjoint_.assign(adjoint.begin(), adjoint.end());
    if (adjoint_.empty()) adjoint_ = ones(step, static_cast<std::size_t>(step.final_bytes()));
    final_.resize(static_cast<std::size_t>(step.final_bytes()));
    gradients();
  }

  GradientCheck compare() {
    GradientCheck found;
    std::mt19937_64 random(check_.seed);
    for (const Variable& variable : variables_) {
      const auto size = static_cast<std::size_t>(element_bytes(variable.element));
      std::vector<std::size_t> elements(variable.values.size() / size);
      std::iota(elements.begin(), elements.end(), std::size_t{0});
      std::ranges::shuffle(elements, random);
      if (elements.size() > static_cast<std::size_t>(check_.elements)) {
        elements.resize(static_cast<std::size_t>(check_.elements));
      }
      const std::size_t first = found.lines.size();
      double largest = 0;
      for (const std::size_t i : elements) {
        GradientCheck::Line line{.name = variable.name, .element = static_cast<std::int64_t>(i)};
        line.gradient = number_at(variable.gradient, variable.element, i);
        line.difference = difference(variable, i);
        largest = std::max({largest, std::abs(line.difference), std::abs(line.gradient)});
        found.lines.push_back(line);
      }
      for (std::size_t l = first; l < found.lines.size(); ++l) {
        GradientCheck::Line& line = found.lines[l];
        const double off = std::abs(line.gradient - line.difference);
        line.error = off == 0 ? 0 : off / std::max(largest, std::numeric_limits<double>::min());
      }
    }
    step_.begin();
    return found;
  }

 private:
  void gradients() {
    std::vector<std::byte> initial_adjoint(initial_.size());
    run_.forward(std::span<const std::byte>(initial_), std::span(final_));
    run_.backward(std::span<const std::byte>(adjoint_), std::span(initial_adjoint));
    for (const FieldShape& field : step_.state_fields()) {
      const auto gradient = part_of(field, std::span(initial_adjoint));
      add({"initial." + field.name,
           field.element,
           part_of(field, std::span(initial_)),
           {gradient.begin(), gradient.end()}});
    }
    const std::vector<Field> parameters = step_.parameters();
    const std::vector<Field> found = step_.gradients();
    if (parameters.size() != found.size()) {
      fail(ErrorCode::invalid_argument, "gradient_check: the step names ", parameters.size(),
           " parameters and ", found.size(), " gradients; there must be one for each");
    }
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (parameters[i].bytes.size() != found[i].bytes.size()) {
        fail(ErrorCode::invalid_argument, "gradient_check: parameter '", parameters[i].name,
             "' has ", parameters[i].bytes.size(), " bytes, its gradient ", found[i].bytes.size());
      }
      add({parameters[i].name,
           parameters[i].element,
           parameters[i].bytes,
           {found[i].bytes.begin(), found[i].bytes.end()}});
    }
    if (variables_.empty()) {
      fail(ErrorCode::invalid_argument,
           "gradient_check: neither state_fields() nor parameters() of the step are numbers; there "
           "is nothing to compare");
    }
  }

  void add(Variable variable) {
    if (variable.element != Element::byte) variables_.push_back(std::move(variable));
  }

  double loss() {
    run_.forward(std::span<const std::byte>(initial_), std::span(final_));
    double sum = step_.loss();
    for (const FieldShape& field : step_.state_fields()) {
      if (field.element == Element::byte) continue;
      const auto values = part_of(field, std::span<const std::byte>(final_));
      const auto weights = part_of(field, std::span<const std::byte>(adjoint_));
      const auto size = static_cast<std::size_t>(element_bytes(field.element));
      for (std::size_t i = 0; i < values.size() / size; ++i) {
        sum += number_at(values, field.element, i) * number_at(weights, field.element, i);
      }
    }
    return sum;
  }

  // The cube root of the rounding error balances it against the error of the difference itself.
  double difference(const Variable& variable, std::size_t i) {
    const double kept = number_at(variable.values, variable.element, i);
    const double rounding = variable.element == Element::f32
                                ? std::numeric_limits<float>::epsilon()
                                : std::numeric_limits<double>::epsilon();
    const double width =
        check_.width > 0 ? check_.width : std::cbrt(rounding) * std::max(1.0, std::abs(kept));
    const PutBack put_back{variable, i, kept};
    set_number(variable.values, variable.element, i, kept + width);
    const double right = number_at(variable.values, variable.element, i);
    const double above = loss();
    set_number(variable.values, variable.element, i, kept - width);
    const double left = number_at(variable.values, variable.element, i);
    const double below = loss();
    return (above - below) / (right - left);
  }

  Step& step_;
  GradientCheckOptions check_;
  std::vector<std::byte> initial_, final_, adjoint_;
  Run run_;
  std::vector<Variable> variables_;
};

}  // namespace

GradientCheck gradient_check(Step& step, const RunOptions& options,
                             std::span<const std::byte> initial, std::span<const std::byte> adjoint,
                             const GradientCheckOptions& check) {
  if (check.elements < 1 || !(check.width >= 0)) {
    fail(ErrorCode::invalid_argument, "gradient_check: ", check.elements, " elements of width ",
         check.width, "; at least 1 element and a width of 0 or more");
  }
  check_fields(step);
  check_named(step, adjoint);
  return Check(step, options, initial, adjoint, check).compare();
}

double GradientCheck::largest_error() const {
  double most = 0;
  for (const Line& line : lines) most = larger(line.error, most);
  return most;
}

std::string GradientCheck::text() const {
  std::ostringstream text;
  text.precision(6);
  text << lines.size() << " gradients against central differences: largest error "
       << largest_error() << '\n';
  for (const Line& line : lines) {
    text << "  " << line.name << '[' << line.element << "]: gradient " << line.gradient
         << ", difference " << line.difference << ", error " << line.error << '\n';
  }
  return text.str();
}

}  // namespace ebb
