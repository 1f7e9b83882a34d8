// SPDX-License-Identifier: Apache-2.0
#include "ebb/plan/action_text.h"

#include <cstddef>
#include <cstdint>
#include <variant>

namespace ebb {
namespace {

std::string range(const char* name, std::int64_t from, std::int64_t to) {
  return name + std::to_string(from) + ".." + std::to_string(to);
}

std::string item(Item item, std::int64_t step) {
  return (item == Item::state ? "state " : "tape ") + std::to_string(step);
}

struct Words {
  const Platform& platform;

  std::string operator()(const Advance& a) const { return range("advance ", a.from, a.to); }
  std::string operator()(const Record& a) const { return range("record ", a.from, a.to); }
  std::string operator()(const Reverse& a) const { return range("reverse ", a.from, a.to); }
  std::string operator()(const Copy& a) const {
    return "copy " + item(a.item, a.step) + " from " + place_text(a.from, platform) + " to " +
           place_text(a.to, platform);
  }
  std::string operator()(const Drop& a) const {
    return "drop " + item(a.item, a.step) + " from " + place_text(a.place, platform);
  }
};

}  // namespace

std::string place_text(Place place, const Platform& platform) {
  if (place == Place::work) return "work";
  if (place == Place::fast) return "fast";
  if (!place.is_slow() || place.tier() >= static_cast<int>(platform.tiers.size())) {
    return "place " + std::to_string(place.id);
  }
  return platform.tiers[static_cast<std::size_t>(place.tier())].name;
}

std::string action_text(const Action& action, const Platform& platform) {
  return std::visit(Words{platform}, action);
}

}  // namespace ebb
