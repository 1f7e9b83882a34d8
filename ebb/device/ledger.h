// SPDX-License-Identifier: Apache-2.0
// The ledger: the only way to memory. Every byte that ebb holds for states, tapes and what moves
// them is charged to an account of a ledger, which refuses what does not fit. What the bytes are
// for is the business of whoever opened the account.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ebb/core/bytes.h"

namespace ebb {

class Ledger;

// One holder's bytes in a ledger. Closed when destroyed or assigned to: what it still holds is given
// back. Movable; keeps its ledger's books alive. One that no ledger opened can only be assigned to.
class Account {
 public:
  Account() = default;
  Account(Account&&) noexcept = default;
  Account& operator=(Account&&) noexcept;
  ~Account();

  // Throws Error(out_of_budget), nothing changed, when the ledger would hold more than its limit.
  void charge(Bytes bytes);
  // Not more than it holds.
  void release(Bytes bytes) noexcept;
  Bytes live() const;
  Bytes peak() const;

 private:
  friend class Ledger;
  struct Books;
  struct Entry;
  std::shared_ptr<Books> books_;
  Entry* entry_ = nullptr;
};

// A hard cap on bytes that several runs may share. Safe to use from several threads.
class Ledger {
 public:
  // Throws Error(invalid_argument) for a negative limit.
  explicit Ledger(Bytes limit = kUnlimited);

  Account open(std::string name) const;
  Bytes limit() const;
  Bytes live() const;
  Bytes peak() const;

  struct Line {
    std::string name;
    Bytes live = 0, peak = 0;
  };
  std::vector<Line> lines() const;  // the open accounts

 private:
  std::shared_ptr<Account::Books> books_;
};

}  // namespace ebb
