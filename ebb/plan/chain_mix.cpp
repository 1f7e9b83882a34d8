// SPDX-License-Identifier: Apache-2.0
#include "ebb/plan/chain_mix.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ebb/plan/segment_table.h"
#include "ebb/plan/uniform_mix.h"

namespace ebb {
namespace {

// Items and units of the tables: with these a plan takes about a second and 200 MiB.
constexpr std::int64_t kItems = 128;
constexpr std::int64_t kItemsInside = 8;
constexpr std::int64_t kUnits = 1000;

// Cuts [a,b) into `count` items of about equal length, each beginning where the state is smallest
// nearby.
std::vector<std::int64_t> cut(const Chain& chain, std::int64_t a, std::int64_t b,
                              std::int64_t count) {
  count = std::min(count, b - a);
  std::vector<std::int64_t> cuts{a};
  const double length = static_cast<double>(b - a) / static_cast<double>(count);
  const auto reach = static_cast<std::int64_t>(length / 3);
  for (std::int64_t g = 1; g < count; ++g) {
    const std::int64_t middle = a + static_cast<std::int64_t>(static_cast<double>(g) * length);
    const std::int64_t from = std::max(middle - reach, cuts.back() + 1);
    std::int64_t best = std::max(middle, from);
    for (std::int64_t s = from; s <= middle + reach; ++s) {
      if (chain.state(s) < chain.state(best)) best = s;
    }
    cuts.push_back(best);
  }
  cuts.push_back(b);
  return cuts;
}

// Items of the whole chain and, when they are longer than a step, of each of them.
struct Layout {
  Layout(const Chain& chain, const Machine& machine)
      : all(chain, machine, cut(chain, 0, chain.steps(), kItems)) {
    if (chain.steps() <= kItems) return;
    for (std::size_t g = 0; g < all.count(); ++g) {
      inside.emplace_back(chain, machine, cut(chain, all.cut(g), all.cut(g + 1), kItemsInside));
    }
  }

  template <class Table, class... Args>
  std::unique_ptr<Table> table(const Args&... args) const {
    std::vector<std::unique_ptr<Table>> groups;
    groups.reserve(inside.size());
    for (const Items& items : inside) groups.push_back(std::make_unique<Table>(items, args...));
    return std::make_unique<Table>(all, args..., std::move(groups));
  }

  Items all;
  std::vector<Items> inside;
};

struct Grid {
  Bytes unit = 1;
  std::int64_t units = 0;
};

// Exact in bytes where that takes few units, else budget / kUnits. More than storing everything is
// never used.
Grid grid_of(const Problem& p) {
  Bytes common = p.machine.working.value_or(0);
  for (std::int64_t i = 0; i < (p.chain.is_uniform() ? 1 : p.steps()); ++i) {
    const StepCost& s = p.chain.at(i);
    common = std::gcd(std::gcd(common, std::gcd(s.state, s.tape)), std::gcd(s.adjoint, s.scratch));
    common = std::gcd(common, s.live_bytes());
  }
  const Bytes most = add_bytes(p.chain.tape_bytes(0, p.steps()), scale_bytes(p.working(), 2));
  const Bytes budget = std::min(p.machine.platform.fast, most);
  Grid grid;
  grid.unit = budget / common <= kUnits ? common : budget / kUnits + (budget % kUnits != 0 ? 1 : 0);
  grid.units = budget / grid.unit;
  return grid;
}

class ChainPolicy : public Policy {
 public:
  explicit ChainPolicy(const Problem& p)
      : chain_(p.chain), layout_(chain_, p.machine), grid_(grid_of(p)) {
    table_ = layout_.table<SegmentTable>(grid_.unit, grid_.units);
    const bool fits =
        !std::isinf(table_->seconds(StartKind::free, 0, layout_.all.count(), grid_.units));
    // The budget fits in bytes but not in units: the plan that needs least.
    if (!fits) least_ = layout_.table<LeastTable>();
  }

  std::int64_t units() const { return grid_.units; }

  Choice choose(const Segment& segment) const override {
    return least_ ? least_->choose(segment) : table_->choose(segment);
  }

 private:
  Chain chain_;
  Layout layout_;
  Grid grid_;
  std::unique_ptr<SegmentTable> table_;
  std::unique_ptr<LeastTable> least_;
};

}  // namespace

Draft draft_chain(const Problem& p) {
  if (p.steps() == 0) return descend(nullptr, p.root());
  if (p.chain.is_uniform() && p.steps() > kItems) return draft_uniform_mix(p, true);
  auto policy = std::make_shared<ChainPolicy>(p);
  Segment root = p.root();
  root.level = static_cast<std::int32_t>(StartKind::free);
  root.room = policy->units();
  Draft draft = descend(policy, root, false);
  draft.at_least = unavoidable_seconds(p.chain);
  return draft;
}

Bytes least_chain(const Problem& p) {
  if (p.steps() == 0) return p.machine.working.value_or(0);
  if (p.chain.is_uniform()) return p.working();
  const Layout layout(p.chain, p.machine);
  return layout.table<LeastTable>()->bytes(StartKind::free, 0, layout.all.count());
}

}  // namespace ebb
