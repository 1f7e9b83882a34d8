// SPDX-License-Identifier: Apache-2.0
// The one exception type of the library. The library throws it, never prints, never aborts.
#pragma once

#include <cstddef>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

#include "ebb/core/bytes.h"

namespace ebb {

enum class ErrorCode {
  invalid_argument,   // the caller's mistake: which value, what is allowed
  infeasible_budget,  // cannot work in the memory given; least_budget() says what would
  out_of_budget,      // a ledger refused; what was held before is still held
  unavailable,        // not in this build or not on this machine
  out_of_memory,
  io,
  device,
  cancelled,  // by the caller's own word
};

// Every error that ebb throws: a code, the problem, a remedy, and the least budget that works if the budget was too small.
class Error : public std::runtime_error {
 public:
  // what() is the problem and, where there is one, "; " and the remedy.
  Error(ErrorCode code, const std::string& problem, std::optional<Bytes> least_budget = {},
        std::string_view remedy = {})
      : std::runtime_error(remedy.empty() ? problem : problem + "; " + std::string(remedy)),
        code_(code),
        least_budget_(least_budget),
        problem_size_(problem.size()),
        remedy_size_(remedy.size()) {}

  ErrorCode code() const noexcept { return code_; }
  // What is wrong, and what can be done about it in words that another layer may replace by its
  // own; empty where nothing is suggested apart. Both live as long as the error.
  std::string_view problem() const noexcept { return {what(), problem_size_}; }
  std::string_view remedy() const noexcept {
    if (remedy_size_ == 0) return {};
    return {what() + problem_size_ + 2, remedy_size_};
  }
  // Set for infeasible_budget when some budget would work.
  std::optional<Bytes> least_budget() const noexcept { return least_budget_; }

 private:
  ErrorCode code_;
  std::optional<Bytes> least_budget_;
  std::size_t problem_size_, remedy_size_;
};

template <class... Parts>
[[noreturn]] void fail(ErrorCode code, const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  throw Error(code, text.str());
}

}  // namespace ebb
