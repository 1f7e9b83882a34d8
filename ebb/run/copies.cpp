// SPDX-License-Identifier: Apache-2.0
// The executor's copies: between the live state, fast memory and slow tiers.
#include <algorithm>
#include <cstring>
#include <string>

#include "ebb/core/error.h"
#include "ebb/run/executor.h"

namespace ebb {
namespace {

std::span<std::byte> span(std::byte* data, Bytes bytes) {
  return {data, static_cast<std::size_t>(bytes)};
}

}  // namespace

void Executor::copy(const Copy& action) {
  if (action.to == Place::work) {
    load(action);
  } else {
    save(action);
  }
  note_peak();
  if (!action.to.is_slow()) return;
  const int tier = action.to.tier();
  Bytes& peak = walk_.measured().peak[1 + static_cast<std::size_t>(tier)];
  peak = std::max(peak, held_.held(tier));
}

// Into the live state. What is lost is computed again by whoever needs it, unless the plan changes.
void Executor::load(const Copy& action) {
  if (held_.has_work()) held_.wait_free(held_.work_holding());
  held_.need_work();
  held_.work_holding().broken = false;
  const Name from{Item::state, action.from, action.step};
  if (!action.from.is_slow()) {
    const Source source = source_of(Place::fast, action.step);
    if (whole(source.holder)) {
      into_work(source, action.step);
    } else {
      held_.work_holding().broken = true;
    }
    return;
  }
  if (!whole(from)) {
    held_.work_holding().broken = true;
    return;
  }
  held_.get(from, {Item::state, Place::work, action.step}, live_span(action.step),
            transforms(Item::state, false), chain_.at(action.step).state);
  if (plan_->machine.sync) held_.wait_ready(held_.work_holding());
}

// The memory of `work` that a transfer moves: all of an item's size, for the sake of direct I/O, or
// what a codec makes of it.
std::span<std::byte> Executor::live_span(std::int64_t step) const {
  return setup_.state_codec != nullptr ? span(held_.work(), static_cast<Bytes>(raw_state(step)))
                                       : span(held_.work(), chain_.at(step).state);
}

// Out of the live state or fast memory, or from a tier into fast memory.
void Executor::save(const Copy& action) {
  const bool is_state = action.item == Item::state;
  const Name from{action.item, action.from, action.step};
  const Name to{action.item, action.to, action.step};
  // Not chain_.state: a sequence of unknown length may be longer than the chain says.
  const StepCost& cost = chain_.at(action.step);
  const Bytes bytes = is_state ? cost.state : cost.tape;
  if (action.from == Place::work) {
    held_.wait_ready(held_.work_holding());
    if (held_.work_holding().broken) recover_work(walk_.live());
  }
  if (!is_state && action.to == Place::fast) {
    held_.add_tapes(action.step, action.step + 1, bytes);
  } else {
    add(to, bytes);
  }
  Source source{.holder = from, .kept = true};
  if (is_state && !action.from.is_slow()) source = source_of(action.from, action.step);
  Holding& arrives = held_.holding(to);
  if (action.from != Place::work && !whole(source.holder)) {
    arrives.broken = true;
    return;
  }
  if (is_state && action.to == Place::fast && !action.from.is_slow()) {
    into_item(source, action.step, held_.bytes_of(arrives));
    return;
  }
  const bool transform = transforms(action.item, source.kept);
  if (action.from.is_slow()) {
    std::byte* const item =
        is_state ? held_.bytes_of(arrives) : held_.tapes_up_to(action.step, action.step).tapes.data;
    held_.get(from, to, span(item, bytes), transform, bytes);
  } else if (!is_state) {
    const std::byte* const item = held_.tapes_up_to(action.step, action.step).tapes.data;
    held_.put(&from, to, {item, static_cast<std::size_t>(bytes)}, transform, bytes);
  } else {
    // States inside a tape and the caller's own have no padding.
    const bool padded = source.kept || (action.from == Place::work && !setup_.state_codec);
    held_.put(source.holder ? &*source.holder : nullptr, to,
              {source.bytes, padded ? static_cast<std::size_t>(bytes) : raw_state(action.step)},
              transform, bytes);
  }
  if (plan_->machine.sync) held_.wait_ready(held_.holding(to));
}

// Only where the length is unknown can a tier turn out to be too small.
void Executor::add(const Name& name, Bytes bytes) {
  try {
    held_.add(name, bytes);
  } catch (const Error& error) {
    if (!plan_->length_unknown || error.code() != ErrorCode::out_of_budget) throw;
    const std::string place =
        name.place.is_slow()
            ? "tier '" +
                  plan_->machine.platform.tiers[static_cast<std::size_t>(name.place.tier())].name +
                  "'"
            : std::string("fast memory");
    fail(ErrorCode::out_of_budget, "run: ", place, " is full after ", walk_.frontier(),
         " steps: ", error.what(), ". Give it a larger capacity, or expect more steps");
  }
}

Executor::Source Executor::source_of(Place place, std::int64_t step) {
  if (place == Place::work) return {held_.work(), Name{Item::state, Place::work, step}, false};
  const Name own{Item::state, Place::fast, step};
  if (const Holding* const held = held_.find(own)) return {held_.bytes_of(*held), own, true};
  if (is_callers(place, step)) return {const_cast<std::byte*>(initial_.data()), {}, false};
  return source_in_tape(step);
}

// The tape of a step holds the state after it.
Executor::Source Executor::source_in_tape(std::int64_t step) {
  std::byte* const tape = held_.tapes_up_to(step - 1, step - 1).tapes.data;
  return {tape + step_.state_in_tape(step - 1), Name{Item::tape, Place::fast, step - 1}, false};
}

bool Executor::whole(const std::optional<Name>& holder) {
  if (!holder) return true;
  Holding* const held = held_.find(*holder);
  if (held == nullptr) return true;
  held_.wait_ready(*held);
  return !held->broken;
}

void Executor::into_work(const Source& source, std::int64_t step) {
  const std::size_t raw = raw_state(step);
  if (source.kept && setup_.state_codec != nullptr) {
    setup_.state_codec->decode(span(source.bytes, setup_.state_codec->encoded_bytes()),
                               {held_.work(), raw});
  } else {
    std::memcpy(held_.work(), source.bytes, raw);
  }
}

void Executor::into_item(const Source& source, std::int64_t step, std::byte* item) {
  const std::size_t raw = raw_state(step);
  if (!source.kept && setup_.state_codec != nullptr) {
    setup_.state_codec->encode({source.bytes, raw},
                               span(item, setup_.state_codec->encoded_bytes()));
  } else {
    std::memcpy(item, source.bytes, raw);
  }
}

}  // namespace ebb
