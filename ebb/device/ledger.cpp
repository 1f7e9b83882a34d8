// SPDX-License-Identifier: Apache-2.0
#include "ebb/device/ledger.h"

#include <algorithm>
#include <list>
#include <mutex>

#include "ebb/core/error.h"

namespace ebb {

struct Account::Entry {
  Ledger::Line line;
};

struct Account::Books {
  mutable std::mutex mutex;
  Bytes limit = 0, live = 0, peak = 0;
  std::list<Entry> entries;
};

Account& Account::operator=(Account&& other) noexcept {
  // What was held before is given back now, not when `other` goes.
  Account old(std::move(other));
  std::swap(books_, old.books_);
  std::swap(entry_, old.entry_);
  return *this;
}

Account::~Account() {
  if (!books_) return;
  const std::scoped_lock lock(books_->mutex);
  books_->live -= entry_->line.live;
  books_->entries.remove_if([this](const Entry& entry) { return &entry == entry_; });
}

void Account::charge(Bytes bytes) {
  if (bytes < 0) fail(ErrorCode::invalid_argument, "Account::charge: ", bytes, " bytes");
  const std::scoped_lock lock(books_->mutex);
  Ledger::Line& line = entry_->line;
  if (bytes > books_->limit - books_->live) {
    fail(ErrorCode::out_of_budget, line.name, " needs ", format_bytes(bytes), " more; of ",
         format_bytes(books_->limit), " allowed ", format_bytes(books_->live),
         " are held. Allow more or hold less at a time");
  }
  line.live += bytes;
  line.peak = std::max(line.peak, line.live);
  books_->live += bytes;
  books_->peak = std::max(books_->peak, books_->live);
}

void Account::release(Bytes bytes) noexcept {
  const std::scoped_lock lock(books_->mutex);
  bytes = std::clamp(bytes, Bytes{0}, entry_->line.live);
  entry_->line.live -= bytes;
  books_->live -= bytes;
}

Bytes Account::live() const {
  const std::scoped_lock lock(books_->mutex);
  return entry_->line.live;
}

Bytes Account::peak() const {
  const std::scoped_lock lock(books_->mutex);
  return entry_->line.peak;
}

Ledger::Ledger(Bytes limit) : books_(std::make_shared<Account::Books>()) {
  if (limit < 0) {
    fail(ErrorCode::invalid_argument, "Ledger: the limit is ", limit,
         " bytes; it must be 0 or more");
  }
  books_->limit = limit;
}

Account Ledger::open(std::string name) const {
  Account account;
  const std::scoped_lock lock(books_->mutex);
  account.entry_ = &books_->entries.emplace_back(Account::Entry{{std::move(name), 0, 0}});
  account.books_ = books_;
  return account;
}

Bytes Ledger::limit() const { return books_->limit; }

Bytes Ledger::live() const {
  const std::scoped_lock lock(books_->mutex);
  return books_->live;
}

Bytes Ledger::peak() const {
  const std::scoped_lock lock(books_->mutex);
  return books_->peak;
}

std::vector<Ledger::Line> Ledger::lines() const {
  const std::scoped_lock lock(books_->mutex);
  std::vector<Line> lines;
  for (const Account::Entry& entry : books_->entries) lines.push_back(entry.line);
  return lines;
}

}  // namespace ebb
