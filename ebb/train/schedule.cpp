// SPDX-License-Identifier: Apache-2.0
#include "ebb/train/schedule.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "ebb/core/error.h"

namespace ebb {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

template <class Number>
Number read(std::string_view words, const char* what, std::string_view word, Number least,
            Number most) {
  Number number{};
  const char* const end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data(), end, number);
  if (error != std::errc{} || stop != end || !(number >= least && number <= most)) {
    fail(ErrorCode::invalid_argument, "schedule '", words, "': ", what, " is '", word,
         "'; it must be a ", std::is_integral_v<Number> ? "whole " : "", "number from ", least,
         " to ", most);
  }
  return number;
}

std::vector<std::string_view> split(std::string_view words) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t comma = std::min(words.find(','), words.size());
    parts.push_back(words.substr(0, comma));
    if (comma == words.size()) return parts;
    words.remove_prefix(comma + 1);
  }
}

[[noreturn]] void refuse(std::string_view words, std::string_view word) {
  fail(
      ErrorCode::invalid_argument, "schedule '", words, "': '", word,
      "' does not belong; there are constant, step:ITERATIONS,FACTOR, cosine and linear, each also "
      "with a warm-up such as cosine,warmup=100");
}

// How much of the way from the end of the warm-up to the end is done.
double share(std::int64_t done, std::int64_t all) {
  return done >= all ? 1 : static_cast<double>(done) / static_cast<double>(all);
}

}  // namespace

double Schedule::at(std::int64_t iteration, std::int64_t iterations) const {
  if (iteration < 0) {
    fail(ErrorCode::invalid_argument, "schedule: iteration ", iteration, "; the first one is 0");
  }
  if (iteration < warmup) {
    return static_cast<double>(iteration + 1) / (static_cast<double>(warmup) + 1);
  }
  const std::int64_t done = iteration - warmup, all = iterations - warmup;
  switch (shape) {
    case Shape::constant:
      break;
    case Shape::step: {
      const std::int64_t times = done / every;
      return std::pow(factor, static_cast<double>(times));
    }
    case Shape::cosine:
      return (1 + std::cos(std::numbers::pi * share(done, all))) / 2;
    case Shape::linear:
      return 1 - share(done, all);
  }
  return 1;
}

Schedule parse_schedule(std::string_view words) {
  constexpr std::string_view step = "step:", warmup = "warmup=";
  const std::vector<std::string_view> parts = split(words);
  Schedule schedule;
  std::size_t next = 1;
  if (parts[0].starts_with(step)) {
    schedule.shape = Schedule::Shape::step;
    schedule.every = read<std::int64_t>(words, "the number of iterations",
                                        parts[0].substr(step.size()), 1, kMost);
    schedule.factor = read<double>(words, "the factor", parts.size() > 1 ? parts[1] : "", 0.0, 1.0);
    next = 2;
  } else if (parts[0] == "cosine") {
    schedule.shape = Schedule::Shape::cosine;
  } else if (parts[0] == "linear") {
    schedule.shape = Schedule::Shape::linear;
  } else if (parts[0] != "constant") {
    refuse(words, parts[0]);
  }
  if (next < parts.size() && parts[next].starts_with(warmup)) {
    schedule.warmup =
        read<std::int64_t>(words, "the warm-up", parts[next].substr(warmup.size()), 0, kMost);
    ++next;
  }
  if (next < parts.size()) refuse(words, parts[next]);
  return schedule;
}

std::string to_text(const Schedule& schedule) {
  std::string text = "constant";
  if (schedule.shape == Schedule::Shape::cosine) text = "cosine";
  if (schedule.shape == Schedule::Shape::linear) text = "linear";
  if (schedule.shape == Schedule::Shape::step) {
    char factor[32];
    const auto end = std::to_chars(factor, factor + sizeof factor, schedule.factor).ptr;
    text = "step:" + std::to_string(schedule.every) + "," + std::string(factor, end);
  }
  if (schedule.warmup > 0) text += ",warmup=" + std::to_string(schedule.warmup);
  return text;
}

}  // namespace ebb
