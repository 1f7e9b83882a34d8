// SPDX-License-Identifier: Apache-2.0
// How the learning rate changes over the iterations.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ebb {

// For the first `warmup` iterations the rate rises in equal steps; the full rate is first that of
// iteration `warmup`, and the shape begins there.
struct Schedule {
  enum class Shape {
    constant,
    step,    // times `factor` every `every` iterations
    cosine,  // half a cosine, 0 after the last iteration
    linear,  // a line, 0 after the last iteration
  };

  Shape shape = Shape::constant;
  std::int64_t every = 1;  // step
  double factor = 1;       // step
  std::int64_t warmup = 0;

  bool operator==(const Schedule&) const = default;

  // What the base rate is multiplied by in iteration `iteration`, counted from 0, of `iterations`.
  // Depends on nothing else, so that a run that is resumed goes on as if it had never stopped; beyond
  // the last iteration the rate stays as it is after it. Throws Error(invalid_argument) for a negative
  // iteration.
  double at(std::int64_t iteration, std::int64_t iterations) const;
};

// "constant", "step:1000,0.5", "cosine", "linear", each also with a warm-up: "cosine,warmup=100".
// Throws Error(invalid_argument).
Schedule parse_schedule(std::string_view words);
// What parse_schedule reads as the same.
std::string to_text(const Schedule& schedule);

}  // namespace ebb
