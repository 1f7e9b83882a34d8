// SPDX-License-Identifier: Apache-2.0
// The one exception type of the library. The library throws it, never prints, never aborts.
#pragma once

#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>

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

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message, std::optional<Bytes> least_budget = {})
      : std::runtime_error(message), code_(code), least_budget_(least_budget) {}

  ErrorCode code() const noexcept { return code_; }
  // Set for infeasible_budget when some budget would work.
  std::optional<Bytes> least_budget() const noexcept { return least_budget_; }

 private:
  ErrorCode code_;
  std::optional<Bytes> least_budget_;
};

template <class... Parts>
[[noreturn]] void fail(ErrorCode code, const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  throw Error(code, text.str());
}

}  // namespace ebb
