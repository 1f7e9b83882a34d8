// SPDX-License-Identifier: Apache-2.0
// Whether iterations take as long as their plan predicts. They do not where costs were measured while
// the machine had other work, and then another plan may be better.
#pragma once

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

namespace ebb {

// What an iteration was to take, and took: seconds.
struct WrongPrediction {
  double predicted = 0, took = 0;
};

class PredictionCheck {
 public:
  // After each iteration; something where costs are to be measured again. The first iteration of a plan
  // warms up, and the fastest of the next three counts. Short iterations gain less than measuring takes.
  std::optional<WrongPrediction> look(double predicted, double seconds) {
    if (checks_ == kMost || seen_++ == 0) return {};
    fastest_ = std::min(fastest_, seconds);
    if (seen_ <= kLooks) return {};
    const double took = std::exchange(fastest_, std::numeric_limits<double>::infinity());
    const double less = std::min(predicted, took), more = std::max(predicted, took);
    const bool wrong = more >= kLeastSeconds && more > kOff * less;
    seen_ = 0;
    checks_ = wrong ? checks_ + 1 : kMost;
    if (!wrong) return {};
    return WrongPrediction{predicted, took};
  }

 private:
  static constexpr int kLooks = 3, kMost = 3;
  static constexpr double kOff = 1.5, kLeastSeconds = 0.05;
  int seen_ = 0, checks_ = 0;
  double fastest_ = std::numeric_limits<double>::infinity();
};

}  // namespace ebb
