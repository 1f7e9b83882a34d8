// SPDX-License-Identifier: Apache-2.0
// Whether a run's gradients are right: against those of storing everything, bit for bit, and
// against finite differences.
#pragma once

#include <cstdint>
#include <ranges>
#include <span>
#include <string>
#include <vector>

#include "ebb/codec/codec.h"
#include "ebb/run/step.h"

namespace ebb {

struct RunOptions;

// How one result differs from what it should be.
struct Difference {
  std::string name;  // "final state", "initial adjoint" or a gradient's name
  std::int64_t elements = 0;
  std::int64_t differing = 0;  // in bits
  double largest = 0;          // of |a - b|; 0 for bytes that are no numbers
  std::int64_t largest_at = -1;
  double relative = 0;  // |a - b| / |b| as vectors
  double cosine = 1;    // between both as vectors
};

// What verify found: whether all bits are the same, and otherwise where they differ.
struct Verification {
  std::int64_t steps = 0;  // compared over the first ones
  std::string strategy;    // that was compared
  std::string against;     // the one it was compared with
  std::vector<Difference> parts;

  bool equal() const;
  double relative() const;  // the largest
  std::string text() const;
};

// Runs the first `steps` steps twice, as the options say, in a budget as scarce for them as the
// options' for all, and storing everything without codecs, and compares every result. The gradient
// with respect to the final state is 1 everywhere. Calls the Step's begin: earlier gradients are
// gone. Throws like Run, and Error(invalid_argument) for a Step of unknown length.
Verification verify(Step& step, const RunOptions& options, std::span<const std::byte> initial,
                    std::int64_t steps = 64);

// The same from an array or vector of numbers.
template <std::ranges::contiguous_range Numbers>
Verification verify(Step& step, const RunOptions& options, const Numbers& initial,
                    std::int64_t steps = 64) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(initial));
  return verify(step, options, bytes, steps);
}

// A state of that many bytes whose numbers are all 1.
std::vector<std::byte> ones(const Step& step, std::size_t bytes);

struct GradientCheckOptions {
  std::int64_t elements = 16;  // of each field, drawn at random; all if there are no more
  double width = 0;            // of the difference; 0: chosen for the element type
  std::uint64_t seed = 1;
};

struct GradientCheck {
  struct Line {
    std::string name;
    std::int64_t element = 0;
    double gradient = 0, difference = 0;
    double error = 0;  // |gradient - difference| / the largest |difference| of its field
  };
  std::vector<Line> lines;
  double largest_error() const;
  std::string text() const;
};

// Compares the gradients of a run with central differences of
//   L = sum of the final state's elements * `adjoint` + step.loss()
// with respect to the initial state and step.parameters(), which are changed and put back. `adjoint`
// empty: 1 everywhere. Throws like Run, and Error(invalid_argument) unless step.state_fields() names
// every byte of the initial state (those that are no numbers as Element::byte, which have no part in
// L), and every byte of the final state where `adjoint` is not 0.
GradientCheck gradient_check(Step& step, const RunOptions& options,
                             std::span<const std::byte> initial,
                             std::span<const std::byte> adjoint = {},
                             const GradientCheckOptions& check = {});
// The same from arrays or vectors of numbers.
template <std::ranges::contiguous_range Numbers>
GradientCheck gradient_check(Step& step, const RunOptions& options, const Numbers& initial,
                             const GradientCheckOptions& check = {}) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(initial));
  return gradient_check(step, options, bytes, std::span<const std::byte>(), check);
}
template <std::ranges::contiguous_range Numbers, std::ranges::contiguous_range Adjoint>
GradientCheck gradient_check(Step& step, const RunOptions& options, const Numbers& initial,
                             const Adjoint& adjoint, const GradientCheckOptions& check = {}) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(initial));
  const std::span<const std::byte> weights = std::as_bytes(std::span(adjoint));
  return gradient_check(step, options, bytes, weights, check);
}

}  // namespace ebb
