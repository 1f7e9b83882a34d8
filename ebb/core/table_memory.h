// SPDX-License-Identifier: Apache-2.0
// Memory for tables that planning fills and then gives up: counted, and given back to the system at
// once, where malloc would keep it for a caller that may never come.
#pragma once

#include <cstddef>
#include <vector>

#include "ebb/core/bytes.h"

namespace ebb {

// Throws Error(out_of_memory).
void* take_table(std::size_t bytes);
void give_table(void* table, std::size_t bytes) noexcept;

// The most that all tables of the process took at a time since the last call of reset_table_peak.
Bytes table_peak();
void reset_table_peak();

template <class Entry>
struct TableMemory {
  using value_type = Entry;  // NOLINT(readability-identifier-naming): the standard library's name
  TableMemory() = default;
  template <class Other>
  explicit(false) TableMemory(const TableMemory<Other>&) {}
  Entry* allocate(std::size_t count) {
    return static_cast<Entry*>(take_table(count * sizeof(Entry)));
  }
  void deallocate(Entry* table, std::size_t count) noexcept {
    give_table(table, count * sizeof(Entry));
  }
  friend bool operator==(const TableMemory&, const TableMemory&) { return true; }
};

template <class Entry>
using Table = std::vector<Entry, TableMemory<Entry>>;

}  // namespace ebb
