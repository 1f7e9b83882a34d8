// SPDX-License-Identifier: Apache-2.0
#include "ebb/run/holdings.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <limits>
#include <utility>

#include "ebb/core/error.h"

namespace ebb {
namespace {

constexpr std::size_t kMostReserved = 1 << 16;
constexpr std::size_t kMostMoves = 64;

}  // namespace

Holdings::Holdings(const HoldingsSetup& setup)
    : setup_(setup),
      memory_(setup.ledger, "run", setup.fast),
      arena_(made_arena()),
      store_(
          std::make_unique<Store>(setup.tiers, setup.needs, setup.host, memory_.at(0, setup.fast))),
      states_(1 + setup.tiers.size()),
      tapes_(1 + setup.tiers.size()),
      traffic_(setup.tiers.size()),
      failed_in_(setup.tiers.size()) {
  reserve();
}

Arena Holdings::made_arena() {
  return Arena(setup_.fast, [this](Arena::Block, Bytes from, Bytes to, Bytes bytes) {
    settle_all();
    std::memmove(memory_.data() + to, memory_.data() + from, static_cast<std::size_t>(bytes));
  });
}

Holdings::~Holdings() { clear(); }

// Nothing is allocated later unless a plan holds very many items.
void Holdings::reserve() {
  const Bytes least = std::max<Bytes>(1, setup_.state);
  const auto most = std::min(kMostReserved, static_cast<std::size_t>(setup_.fast / least) + 1);
  states_[0].reserve(most);
  tapes_[0].reserve(most);
  ranges_.reserve(most);
  arena_.reserve(2 * most + 3);
  for (std::size_t k = 0; k < setup_.needs.size(); ++k) {
    states_[k + 1].reserve(std::min(kMostReserved, setup_.needs[k].items));
    tapes_[k + 1].reserve(std::min(kMostReserved, setup_.needs[k].items));
  }
  moves_.reserve(kMostMoves);
}

void Holdings::clear() noexcept {
  forget_items();
  std::ranges::fill(traffic_, TierTraffic{});
  stalled_ = 0;
  failed_ = 0;
  std::ranges::fill(failed_in_, 0);
  failures_.clear();
}

void Holdings::forget_items() noexcept {
  for (ItemMove& move : moves_) {
    if (move.ticket < 0) continue;
    store_->forget(std::exchange(move.ticket, -1));
  }
  const auto forget = [this](std::size_t place, StepTable<Holding>& held) {
    held.visit([&](std::int64_t, Holding& holding) {
      if (place > 0) store_->drop(static_cast<int>(place) - 1, holding.slot);
      if (place == 0 && holding.block != Arena::kNone) arena_.remove(holding.block);
    });
    held.clear();
  };
  for (std::size_t place = 0; place < states_.size(); ++place) {
    forget(place, states_[place]);
    forget(place, tapes_[place]);
  }
  for (const TapeRange& range : ranges_) arena_.remove(range.block);
  ranges_.clear();
  for (Arena::Block* const block : {&work_.block, &adjoint_, &scratch_}) {
    if (*block != Arena::kNone) arena_.remove(*block);
    *block = Arena::kNone;
  }
  work_ = {};
  items_ = 0;
}

void Holdings::need_work() {
  if (has_work()) return;
  work_ = {};
  work_.block = arena_.add(setup_.state, Arena::End::high);
}

void Holdings::free_work() {
  if (!has_work()) return;
  wait_free(work_);
  arena_.remove(work_.block);
  work_ = {};
}

void Holdings::need_adjoint() {
  if (adjoint_ == Arena::kNone) adjoint_ = arena_.add(setup_.adjoint, Arena::End::high);
}

std::byte* Holdings::take_scratch(Bytes bytes) {
  if (bytes == 0) return nullptr;
  scratch_ = arena_.add(bytes, Arena::End::high);
  return at(scratch_);
}

void Holdings::give_scratch() {
  if (scratch_ == Arena::kNone) return;
  arena_.remove(scratch_);
  scratch_ = Arena::kNone;
}

Holding* Holdings::find(const Name& name) {
  if (name.place == Place::work) return &work_;
  return table(name.item, name.place).find(name.step);
}

Holding& Holdings::holding(const Name& name) {
  if (name.item == Item::tape && name.place == Place::fast) return tape_holding(name.step);
  Holding* const held = find(name);
  if (held == nullptr) {
    fail(ErrorCode::invalid_argument, "run: the plan speaks of ",
         name.item == Item::state ? "state " : "tape ", name.step, ", which is not where it says");
  }
  return *held;
}

Holding& Holdings::add(const Name& name, Bytes bytes) {
  Holding holding;
  if (name.place.is_slow()) {
    holding.slot = store_->add(name.place.tier(), bytes);
  } else {
    holding.block = arena_.add(bytes, Arena::End::high);
    items_ += bytes;
  }
  return table(name.item, name.place).insert(name.step, holding);
}

void Holdings::drop(const Name& name) {
  if (name.item == Item::tape && name.place == Place::fast) {
    if (Holding* const holding = find(name)) wait_free(*holding);
    drop_tapes(name.step, name.step + 1);
    return;
  }
  Holding& holding = *find(name);
  wait_free(holding);
  if (name.place.is_slow()) {
    store_->drop(name.place.tier(), holding.slot);
  } else {
    items_ -= arena_.bytes(holding.block);
    arena_.remove(holding.block);
  }
  table(name.item, name.place).erase(name.step);
}

std::size_t Holdings::range_after(std::int64_t step) const {
  const std::size_t size = ranges_.size();
  if (size == 0 || ranges_.back().to <= step) return size;
  const auto found = std::partition_point(ranges_.begin(), ranges_.end(),
                                          [step](const TapeRange& r) { return r.to <= step; });
  return static_cast<std::size_t>(found - ranges_.begin());
}

void Holdings::add_tapes(std::int64_t from, std::int64_t to, Bytes each) {
  const Bytes bytes = scale_bytes(each, to - from);
  const Arena::Block block = arena_.add(bytes, Arena::End::low);
  items_ += bytes;
  const auto place = ranges_.begin() + static_cast<std::ptrdiff_t>(range_after(from));
  ranges_.insert(place, {from, to, block, each});
}

bool Holdings::has_tape(std::int64_t step) const {
  const std::size_t i = range_after(step);
  return i < ranges_.size() && ranges_[i].from <= step;
}

Holdings::TapeRun Holdings::tapes_up_to(std::int64_t from, std::int64_t last) const {
  const TapeRange& range = ranges_[range_after(last)];
  const std::int64_t first = std::max(from, range.from);
  return {first, last + 1, {at(range.block) + (first - range.from) * range.each, range.each}};
}

Holding& Holdings::tape_holding(std::int64_t step) {
  Holding* const known = tapes_[0].find(step);
  return known != nullptr ? *known : tapes_[0].insert(step, {});
}

void Holdings::drop_tapes(std::int64_t from, std::int64_t to) {
  tapes_[0].erase(from, to);
  while (from < to) {
    const std::size_t i = range_after(to - 1);
    if (to < ranges_[i].to) {
      // What lies behind becomes a range of its own.
      const TapeRange whole = ranges_[i];
      const Arena::Block rest = arena_.split(whole.block, (to - whole.from) * whole.each);
      ranges_[i].to = to;
      ranges_.insert(ranges_.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                     {to, whole.to, rest, whole.each});
    }
    TapeRange& range = ranges_[i];
    const std::int64_t first = std::max(from, range.from);
    items_ -= (to - first) * range.each;
    if (first == range.from) {
      arena_.remove(range.block);
      ranges_.erase(ranges_.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      arena_.shrink(range.block, (first - range.from) * range.each);
      range.to = first;
    }
    to = first;
  }
}

// Only that many may be under way: the oldest is waited for first.
std::int32_t Holdings::start(const Name* from, const Name& to, Bytes bytes, bool writes) {
  if (store_->full()) {
    const auto oldest = std::ranges::min_element(moves_, {}, [](const ItemMove& move) {
      return move.ticket < 0 ? std::numeric_limits<std::int64_t>::max() : move.number;
    });
    settle(static_cast<std::int32_t>(oldest - moves_.begin()));
  }
  auto idle = std::ranges::find_if(moves_, [](const ItemMove& move) { return move.ticket < 0; });
  if (idle == moves_.end()) idle = moves_.insert(idle, ItemMove{});
  const auto m = static_cast<std::int32_t>(idle - moves_.begin());
  *idle = {};
  idle->number = ++numbered_;
  idle->destination = to;
  idle->writes = writes;
  idle->bytes = bytes;
  holding(to).in = m;
  if (from == nullptr) return m;
  idle->source = *from;
  idle->has_source = true;
  idle->earlier_out = std::exchange(holding(*from).out, m);
  return m;
}

void Holdings::put(const Name* from, const Name& to, std::span<const std::byte> bytes,
                   bool transform, Bytes counted) {
  const std::int32_t m = start(from, to, counted, true);
  moves_[static_cast<std::size_t>(m)].ticket =
      store_->put(to.place.tier(), holding(to).slot, bytes, transform);
}

void Holdings::get(const Name& from, const Name& to, std::span<std::byte> bytes, bool transform,
                   Bytes counted) {
  const std::int32_t m = start(&from, to, counted, false);
  moves_[static_cast<std::size_t>(m)].ticket =
      store_->get(from.place.tier(), holding(from).slot, bytes, transform);
}

void Holdings::settle(std::int32_t m) {
  ItemMove& move = moves_[static_cast<std::size_t>(m)];
  const bool waits = !store_->done(move.ticket);
  const double before = waits ? now() : 0;
  Holding& destination = *find(move.destination);
  const std::exception_ptr mistake = finish(move, destination);
  destination.in = -1;
  unlink(m);
  if (mistake) std::rethrow_exception(mistake);
  if (!waits) return;
  const double after = now();
  stalled_ += after - before;
  if (setup_.trace != nullptr) {
    setup_.trace->add({.kind = TraceEvent::Kind::wait, .start = before, .end = after});
  }
}

// Waits and counts; where it failed the holding is broken. What a codec does not take is no fault of
// the tier, and returned.
std::exception_ptr Holdings::finish(ItemMove& move, Holding& holding) {
  try {
    count(move, store_->wait(std::exchange(move.ticket, -1)));
  } catch (const Error& error) {
    holding.broken = true;
    note_failure(move, error.what());
    if (error.code() == ErrorCode::invalid_argument) return std::current_exception();
  } catch (...) {
    holding.broken = true;
    note_failure(move, "the medium threw something else than ebb::Error");
  }
  return nullptr;
}

void Holdings::count(const ItemMove& move, const Store::Times& times) {
  const Name& slow = move.writes ? move.destination : move.source;
  TierTraffic& tier = traffic_[static_cast<std::size_t>(slow.place.tier())];
  TierTraffic::Direction& direction = move.writes ? tier.written : tier.read;
  (slow.item == Item::state ? direction.states : direction.tapes) += 1;
  direction.bytes += move.bytes;
  direction.stored += times.bytes;
  direction.busy_seconds += std::max(0.0, times.end - std::max(times.start, direction.busy_until));
  direction.busy_until = std::max(direction.busy_until, times.end);
  if (setup_.trace == nullptr) return;
  setup_.trace->add({.kind = move.writes ? TraceEvent::Kind::write : TraceEvent::Kind::read,
                     .tier = static_cast<std::int8_t>(slow.place.tier()),
                     .tape = slow.item == Item::tape,
                     .start = earlier_ + times.start,
                     .end = earlier_ + times.end,
                     .from = slow.step,
                     .to = slow.step + 1,
                     .bytes = times.bytes});
}

// Takes the move out of its source's list of transfers.
void Holdings::unlink(std::int32_t m) {
  const ItemMove& move = moves_[static_cast<std::size_t>(m)];
  if (!move.has_source) return;
  std::int32_t* link = &find(move.source)->out;
  while (*link != m) link = &moves_[static_cast<std::size_t>(*link)].earlier_out;
  *link = move.earlier_out;
}

void Holdings::settle_all() {
  for (std::size_t m = 0; m < moves_.size(); ++m) {
    if (moves_[m].ticket >= 0) settle(static_cast<std::int32_t>(m));
  }
}

void Holdings::wait_ready(Holding& holding) {
  if (holding.in >= 0) settle(holding.in);
}

void Holdings::wait_free(Holding& holding) {
  wait_ready(holding);
  while (holding.out >= 0) settle(holding.out);
}

bool Holdings::read_now(const Name& from, std::span<std::byte> bytes, bool transform,
                        Bytes counted) {
  Holding& source = *find(from);
  wait_ready(source);
  if (source.broken) return false;
  if (store_->full()) settle_all();
  ItemMove move;
  move.source = from;
  move.bytes = counted;
  move.ticket = store_->get(from.place.tier(), source.slot, bytes, transform);
  finish(move, source);
  return !source.broken;
}

void Holdings::visit_states(const std::function<void(Place, std::int64_t)>& visit) {
  for (std::size_t place = 0; place < states_.size(); ++place) {
    states_[place].visit([&](std::int64_t step, Holding& holding) {
      if (!holding.broken) visit(Place{static_cast<std::int8_t>(place + 1)}, step);
    });
  }
}

void Holdings::visit_tapes(const std::function<void(std::int64_t, std::int64_t)>& visit) const {
  for (const TapeRange& range : ranges_) visit(range.from, range.to);
}

}  // namespace ebb
