// SPDX-License-Identifier: Apache-2.0
#include "ebb/core/table_memory.h"

#include <sys/mman.h>

#include <atomic>
#include <new>

#include "ebb/core/zeros.h"

namespace ebb {
namespace {

// Smaller ones would waste much of their last page.
constexpr std::size_t kMapped = 1 << 17;

std::atomic<Bytes> live = 0, peak = 0;

}  // namespace

void* take_table(std::size_t bytes) {
  void* table = nullptr;
  if (bytes < kMapped) {
    table = ::operator new(bytes, std::nothrow);
    if (table == nullptr) refuse_memory(static_cast<Bytes>(bytes), "a table of the planner");
  } else {
    table = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (table == MAP_FAILED) refuse_memory(static_cast<Bytes>(bytes), "a table of the planner");
  }
  const Bytes now = live += static_cast<Bytes>(bytes);
  for (Bytes most = peak; most < now && !peak.compare_exchange_weak(most, now);) {
  }
  return table;
}

void give_table(void* table, std::size_t bytes) noexcept {
  live -= static_cast<Bytes>(bytes);
  if (bytes < kMapped) {
    ::operator delete(table);
  } else {
    ::munmap(table, bytes);
  }
}

Bytes table_peak() { return peak; }
void reset_table_peak() { peak = live.load(); }

}  // namespace ebb
