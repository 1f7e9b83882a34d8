// SPDX-License-Identifier: Apache-2.0
//
// A node is where the machine stands: the live state, the number R of steps not yet reversed, and
// which items each place holds. An edge is an action on a single step. What is left out, and why no
// plan is lost:
//
//  Items of reversed steps. Nobody can use state s or a tape of step s once R <= s, so a plan may
//    drop them before it reverses step s: a drop right after the action before the reversal holds
//    no more than that action did, and where that action is a reversal itself the drop moves before
//    it too. Reverse is therefore an edge only when nothing of its step is left but the tape.
//  Idling beside the tape reversed next (only where a smaller R never needs more memory: all steps
//    alike, or a constant working set). Once tape R-1 is in fast, the only edges are the drops for
//    the rule above and the reversal. If it came by Record or was there when R fell, whatever a
//    plan does before the reversal it may do after it: the set of R-2 takes no more room, and
//    nothing useful needs step R-1 again. If it was loaded, whatever the plan does between may come
//    before the load, which nothing of it needs.
//
// Nodes are looked at in the order of seconds so far + seconds that no plan avoids from there on
// (A*): every step left is reversed once, and recorded where no place holds its tape.
#include "tests/plan/oracle.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <queue>
#include <stdexcept>
#include <unordered_map>
#include <utility>
#include <variant>

namespace ebb::test {
namespace {

using Mask = std::uint8_t;  // of steps
using Key = std::uint64_t;

constexpr std::int64_t kMostSteps = 8;
constexpr std::size_t kMostTiers = 2;

struct Node {
  int live = 0;
  int left = 0;
  // [0]: fast, [1+k]: tier k; then by Item.
  std::array<std::array<Mask, 2>, 1 + kMostTiers> held{};

  Key key() const {
    Key key = static_cast<Key>(live) << 4 | static_cast<Key>(left);
    for (const auto& place : held) {
      for (const Mask mask : place) key = key << 8 | mask;
    }
    return key;
  }
  static Node of(Key key) {
    Node node;
    for (std::size_t i = node.held.size() * 2; i-- > 0; key >>= 8) {
      node.held[i / 2][i % 2] = static_cast<Mask>(key & 0xFF);
    }
    node.left = static_cast<int>(key & 0xF);
    node.live = static_cast<int>(key >> 4);
    return node;
  }

  Mask& at(Item item, Place place) {
    return held[static_cast<std::size_t>(place.id - 1)][static_cast<std::size_t>(item)];
  }
  Mask at(Item item, Place place) const {
    return held[static_cast<std::size_t>(place.id - 1)][static_cast<std::size_t>(item)];
  }
};

Mask bit(std::int64_t step) { return static_cast<Mask>(1U << static_cast<unsigned>(step)); }
bool has(Mask mask, std::int64_t step) { return step >= 0 && (mask & bit(step)) != 0; }
void add(Mask& mask, std::int64_t step) { mask = static_cast<Mask>(mask | bit(step)); }
void remove(Mask& mask, std::int64_t step) { mask = static_cast<Mask>(mask & ~bit(step)); }

struct Edge {
  Node to;
  double seconds = 0;
};

class Search {
 public:
  Search(const Chain& chain, const Machine& machine, const OracleOptions& options)
      : chain_(chain),
        machine_(machine),
        options_(options),
        places_(static_cast<int>(machine.platform.tiers.size()) + 1),
        smaller_left_is_easier_(chain.is_uniform() || machine.working.has_value()) {
    for (unsigned mask = 0; mask < 256; ++mask) {
      for (std::int64_t i = 0; i < chain.steps(); ++i) {
        if (!has(static_cast<Mask>(mask), i)) continue;
        bytes_[0][mask] += chain.at(i).state;
        bytes_[1][mask] += chain.at(i).tape;
      }
    }
  }

  std::optional<OracleAnswer> run();

 private:
  // The action's outcome; nullopt where a rule or a budget forbids it.
  std::optional<Edge> follow(const Node& node, const Action& action) const;
  std::optional<Edge> try_action(const Node& node, const Advance& action) const;
  std::optional<Edge> try_action(const Node& node, const Record& action) const;
  std::optional<Edge> try_action(const Node& node, const Reverse& action) const;
  std::optional<Edge> try_action(const Node& node, const Copy& action) const;
  std::optional<Edge> try_action(const Node& node, const Drop& action) const;

  double unavoidable(const Node& node) const;
  bool holds(const Node& node, Item item, Place place, std::int64_t step) const;
  bool offers(const Node& node, Item item, Place place, std::int64_t step) const;
  bool fits(const Node& before, const Node& after, Bytes scratch) const;
  Bytes bytes(Item item, Mask mask) const { return bytes_[static_cast<std::size_t>(item)][mask]; }
  std::vector<Action> actions(const Node& node) const;
  std::vector<Action> drops_for_reversal(const Node& node) const;
  OracleAnswer answer(Key goal) const;

  const Chain& chain_;
  const Machine& machine_;
  const OracleOptions& options_;
  const int places_;  // beside work
  const bool smaller_left_is_easier_;

  std::array<std::array<Bytes, 256>, 2> bytes_{};  // by Item and mask
  struct Best {
    double seconds;
    Key from;
  };
  std::unordered_map<Key, Best> best_;
};

std::optional<Edge> Search::try_action(const Node& node, const Advance& action) const {
  if (node.live >= node.left) return {};
  Edge edge{node, chain_.at(action.from).forward};
  ++edge.to.live;
  if (!fits(node, edge.to, chain_.at(action.from).scratch)) return {};
  return edge;
}

std::optional<Edge> Search::try_action(const Node& node, const Record& action) const {
  const std::int64_t step = action.from;
  if (node.live >= node.left || has(node.at(Item::tape, Place::fast), step)) return {};
  const bool next = step == node.left - 1;
  if (!next && (machine_.states_only || !options_.allow_tapes)) return {};
  Edge edge{node, chain_.at(step).record};
  ++edge.to.live;
  add(edge.to.at(Item::tape, Place::fast), step);
  if (!fits(node, edge.to, chain_.at(step).scratch)) return {};
  return edge;
}

std::optional<Edge> Search::try_action(const Node& node, const Reverse& action) const {
  const std::int64_t step = action.from;
  if (!has(node.at(Item::tape, Place::fast), step)) return {};
  if (!drops_for_reversal(node).empty()) return {};
  Edge edge{node, chain_.at(step).backward};
  --edge.to.left;
  remove(edge.to.at(Item::tape, Place::fast), step);
  if (!fits(node, node, chain_.at(step).scratch)) return {};
  return edge;
}

std::optional<Edge> Search::try_action(const Node& node, const Copy& action) const {
  const auto [item, from, to, step] = action;
  if (item == Item::tape && (machine_.states_only || !options_.tier_tapes)) return {};
  if (item == Item::state && to != Place::work && !options_.allow_states) return {};
  if (!offers(node, item, from, step) || holds(node, item, to, step)) return {};
  Edge edge{node, 0};
  if (to == Place::work) {
    edge.to.live = static_cast<int>(step);
  } else {
    add(edge.to.at(item, to), step);
  }
  const std::vector<Tier>& tiers = machine_.platform.tiers;
  const Bytes size = bytes(item, bit(step));
  if (to.is_slow()) edge.seconds = tiers[static_cast<std::size_t>(to.tier())].write_seconds(size);
  if (from.is_slow()) {
    edge.seconds = tiers[static_cast<std::size_t>(from.tier())].read_seconds(size);
  }
  if (!fits(node, edge.to, 0)) return {};
  return edge;
}

std::optional<Edge> Search::try_action(const Node& node, const Drop& action) const {
  if (!has(node.at(action.item, action.place), action.step)) return {};
  Edge edge{node, 0};
  remove(edge.to.at(action.item, action.place), action.step);
  if (!fits(node, edge.to, 0)) return {};
  return edge;
}

std::optional<Edge> Search::follow(const Node& node, const Action& action) const {
  return std::visit([&](const auto& a) { return try_action(node, a); }, action);
}

double Search::unavoidable(const Node& node) const {
  double seconds = 0;
  unsigned tapes = 0;
  for (const auto& place : node.held) tapes |= place[static_cast<std::size_t>(Item::tape)];
  for (std::int64_t step = 0; step < node.left; ++step) {
    seconds += chain_.at(step).backward;
    if (!has(static_cast<Mask>(tapes), step)) seconds += chain_.at(step).record;
  }
  return seconds;
}

bool Search::holds(const Node& node, Item item, Place place, std::int64_t step) const {
  if (place == Place::work) return item == Item::state && node.live == step;
  const bool callers = item == Item::state && place == Place::fast && step == 0;
  return (callers && !machine_.start_charged) || has(node.at(item, place), step);
}

// Whether a copy may start there.
bool Search::offers(const Node& node, Item item, Place place, std::int64_t step) const {
  const bool in_tape = item == Item::state && place == Place::fast && options_.tapes_restart &&
                       has(node.at(Item::tape, Place::fast), step - 1);
  return in_tape || holds(node, item, place, step);
}

// The budgets during an action, with what it brings and what it takes away.
bool Search::fits(const Node& before, const Node& after, Bytes scratch) const {
  const auto both = [&](Item item, Place place) {
    return static_cast<Mask>(before.at(item, place) | after.at(item, place));
  };
  for (int k = 0; k + 1 < places_; ++k) {
    const Place tier = Place::slow(k);
    const Bytes all =
        bytes(Item::state, both(Item::state, tier)) + bytes(Item::tape, both(Item::tape, tier));
    if (all > machine_.platform.tiers[static_cast<std::size_t>(k)].capacity) return false;
  }
  const StepCost& next = chain_.at(before.left - 1);
  // A live state from which nothing can be run any more weighs nothing, unless it comes just now.
  Bytes live = before.live < before.left ? chain_.live(before.live) : 0;
  if (after.live != before.live) live = std::max(live, chain_.live(after.live));
  const Bytes working = machine_.working.value_or(live + next.adjoint + scratch + next.tape);
  Mask tapes = both(Item::tape, Place::fast);
  remove(tapes, before.left - 1);
  const Bytes others =
      bytes(Item::state, both(Item::state, Place::fast)) + bytes(Item::tape, tapes);
  return working + others <= machine_.platform.fast;
}

// What must go before step R-1 is reversed.
std::vector<Action> Search::drops_for_reversal(const Node& node) const {
  const std::int64_t step = node.left - 1;
  std::vector<Action> drops;
  for (int id = 1; id <= places_; ++id) {
    const Place place{static_cast<std::int8_t>(id)};
    if (has(node.at(Item::state, place), step)) drops.push_back(Drop{Item::state, place, step});
    if (place != Place::fast && has(node.at(Item::tape, place), step)) {
      drops.push_back(Drop{Item::tape, place, step});
    }
  }
  return drops;
}

std::vector<Action> Search::actions(const Node& node) const {
  std::vector<Action> list;
  if (has(node.at(Item::tape, Place::fast), node.left - 1)) {
    list = drops_for_reversal(node);
    if (list.empty()) list.push_back(Reverse{node.left - 1, node.left});
    if (smaller_left_is_easier_) return list;
  }
  list.push_back(Advance{node.live, node.live + 1});
  list.push_back(Record{node.live, node.live + 1});
  for (std::int64_t step = 0; step < node.left; ++step) {
    for (int a = 0; a <= places_; ++a) {
      const Place from{static_cast<std::int8_t>(a)};
      for (const Item item : {Item::state, Item::tape}) {
        if (!offers(node, item, from, step)) continue;
        if (from != Place::work) list.push_back(Drop{item, from, step});
        for (int b = item == Item::tape ? 1 : 0; b <= places_; ++b) {
          const Place to{static_cast<std::int8_t>(b)};
          if (a != b && !(from.is_slow() && to.is_slow())) {
            list.push_back(Copy{item, from, to, step});
          }
        }
      }
    }
  }
  return list;
}

std::optional<OracleAnswer> Search::run() {
  using Open = std::pair<double, Key>;
  std::priority_queue<Open, std::vector<Open>, std::greater<>> open;
  Node start;
  start.left = static_cast<int>(chain_.steps());
  best_[start.key()] = {0, start.key()};
  open.push({unavoidable(start), start.key()});
  while (!open.empty()) {
    const auto [total, key] = open.top();
    open.pop();
    const Node node = Node::of(key);
    const double seconds = best_[key].seconds;
    if (total > seconds + unavoidable(node)) continue;
    if (node.left == 0) return answer(key);
    for (const Action& action : actions(node)) {
      const std::optional<Edge> edge = follow(node, action);
      if (!edge) continue;
      const Key to = edge->to.key();
      const double reached = seconds + edge->seconds;
      const auto [found, is_new] = best_.try_emplace(to, Best{reached, key});
      if (!is_new && found->second.seconds <= reached) continue;
      found->second = {reached, key};
      open.push({reached + unavoidable(edge->to), to});
    }
  }
  return {};
}

OracleAnswer Search::answer(Key goal) const {
  OracleAnswer answer;
  answer.seconds = best_.at(goal).seconds;
  for (Key to = goal; best_.at(to).from != to; to = best_.at(to).from) {
    const Key from = best_.at(to).from;
    for (const Action& action : actions(Node::of(from))) {
      const std::optional<Edge> edge = follow(Node::of(from), action);
      if (!edge || edge->to.key() != to) continue;
      // The same node may be reached by a dearer copy from another place.
      if (best_.at(from).seconds + edge->seconds != best_.at(to).seconds) continue;
      answer.actions.push_back(action);
      break;
    }
  }
  std::reverse(answer.actions.begin(), answer.actions.end());
  return answer;
}

}  // namespace

std::optional<OracleAnswer> oracle(const Chain& chain, const Machine& machine,
                                   const OracleOptions& options) {
  if (chain.steps() > kMostSteps || machine.platform.tiers.size() > kMostTiers ||
      chain.call() != 0) {
    throw std::invalid_argument("oracle: at most 8 steps, 2 tiers, no seconds per call");
  }
  return Search(chain, machine, options).run();
}

}  // namespace ebb::test
