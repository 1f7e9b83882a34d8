// SPDX-License-Identifier: Apache-2.0
// The five actions a plan is made of. What they mean for time and memory is written in replay.h;
// the executor follows the same words.
#pragma once

#include <cstdint>
#include <variant>

namespace ebb {

enum class Item : std::uint8_t { state, tape };

// Where an item is: `work` (the live state), `fast`, or a slow tier by its index in
// Platform::tiers.
struct Place {
  std::int8_t id = 0;

  static const Place work;
  static const Place fast;
  static constexpr Place slow(int tier) { return Place{static_cast<std::int8_t>(tier + 2)}; }

  constexpr bool is_slow() const { return id >= 2; }
  constexpr int tier() const { return id - 2; }
  friend bool operator==(Place, Place) = default;
};
inline constexpr Place Place::work{0};
inline constexpr Place Place::fast{1};

// Runs steps [from,to) from the live state, keeping nothing.
struct Advance {
  std::int64_t from, to;
  friend bool operator==(const Advance&, const Advance&) = default;
};
// Runs steps [from,to) from the live state, leaving their tapes in fast.
struct Record {
  std::int64_t from, to;
  friend bool operator==(const Record&, const Record&) = default;
};
// Goes backward through recorded steps [from,to), last first, and frees their tapes.
struct Reverse {
  std::int64_t from, to;
  friend bool operator==(const Reverse&, const Reverse&) = default;
};
// Starts a transfer. A state is named by the step it restarts, a tape by the step it belongs to.
struct Copy {
  Item item;
  Place from, to;
  std::int64_t step;
  friend bool operator==(const Copy&, const Copy&) = default;
};
struct Drop {
  Item item;
  Place place;
  std::int64_t step;
  friend bool operator==(const Drop&, const Drop&) = default;
};

using Action = std::variant<Advance, Record, Reverse, Copy, Drop>;

}  // namespace ebb
