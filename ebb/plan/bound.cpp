// SPDX-License-Identifier: Apache-2.0
#include "ebb/plan/bound.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "ebb/plan/binomial.h"

namespace ebb {
namespace {

// The relaxed machine: what the proofs of docs/planning.md count.
class Relaxation {
 public:
  Relaxation(const Chain& chain, const Machine& machine)
      : machine_(machine), steps_(chain.steps()) {
    const bool uniform = chain.is_uniform();
    const std::int64_t kinds = uniform ? 1 : steps_;
    state_ = tape_ = kUnlimited;
    Bytes least_working = kUnlimited;
    for (std::int64_t i = 0; i < kinds; ++i) {
      const StepCost& s = chain.at(i);
      state_ = std::min(state_, s.state);
      tape_ = std::min(tape_, s.tape);
      again_.push_back(std::min(s.forward, s.record));
      const Bytes live = uniform ? add_bytes(s.live_bytes(), s.scratch) : 0;
      least_working = std::min(least_working, add_bytes(live, add_bytes(s.adjoint, s.tape)));
    }
    std::sort(again_.begin(), again_.end());
    std::partial_sum(again_.begin(), again_.end(), again_.begin());
    const Bytes working = machine.working.value_or(least_working);
    room_ = std::max<Bytes>(machine.platform.fast - working, 0);
    if (machine.platform.fast == kUnlimited) room_ = kUnlimited;
    // A step that runs forward takes this at least, whether it records or not.
    sweep_ = rerun(static_cast<double>(steps_));
    backward_ = chain.backward_seconds(0, steps_);
    unavoidable_ = chain.record_seconds(0, steps_) + backward_ + 2 * chain.call();
    capacities();
    if (!uniform) rerun_once_ = knapsack(chain);
  }

  // The least time that the counting arguments allow.
  double seconds() const {
    if (machine_.platform.tiers.empty()) return unavoidable_ + reruns_in_fast();
    return machine_.sync ? in_turns() : overlapped();
  }

 private:
  // Seconds of `count` different steps running once more.
  double rerun(double count) const {
    if (count <= 0) return 0;
    if (again_.size() == 1) return count * again_.front();
    const auto whole = static_cast<std::size_t>(count);
    return whole == 0 ? 0 : again_[std::min(whole, again_.size()) - 1];
  }

  // Uneven chains without slow tiers: when the last step first runs, the tapes held there save the
  // reruns of their steps, and no choice of tapes saves more than the one that takes the best
  // seconds a byte first, the last of them in part.
  double knapsack(const Chain& chain) const {
    const std::int64_t last = steps_ - 1;
    const StepCost& end = chain.at(last);
    const Bytes own =
        add_bytes(add_bytes(end.live_bytes(), end.scratch), add_bytes(end.adjoint, end.tape));
    double room = static_cast<double>(machine_.platform.fast - machine_.working.value_or(own));
    struct Saving {
      double seconds, bytes;
    };
    std::vector<Saving> savings;
    double all = 0;
    for (std::int64_t i = 0; i < last; ++i) {
      const StepCost& s = chain.at(i);
      savings.push_back({std::min(s.forward, s.record), static_cast<double>(s.tape)});
      all += savings.back().seconds;
    }
    std::sort(savings.begin(), savings.end(), [](const Saving& a, const Saving& b) {
      return a.seconds * b.bytes > b.seconds * a.bytes;
    });
    for (const Saving& saving : savings) {
      const double share = std::clamp(room / saving.bytes, 0.0, 1.0);
      all -= share * saving.seconds;
      room -= saving.bytes;
    }
    return std::max(all, 0.0);
  }

  // fast_[j-1]: steps that run at most j times without slow tiers; the last entry covers the chain.
  void capacities() {
    const Bytes item = std::min(state_, tape_);
    const std::int64_t slots = std::min(room_ / item, steps_);
    const auto total = static_cast<double>(steps_);
    for (std::int64_t j = 1;; ++j) {
      double reach = 0;
      if (machine_.states_only) {
        reach = static_cast<double>(beta(slots + (machine_.start_charged ? 0 : 1), j - 1));
        // A sub-chain between slow states has its start for free.
        between_.push_back(static_cast<double>(beta(slots + 1, j - 1)));
      } else {
        reach = j == 1 ? once() : static_cast<double>(beta(slots + 1, j)) - 1;
        if (j == 2) reach = std::min(reach, twice());
        between_.push_back(reach);
      }
      fast_.push_back(reach);
      if (between_.back() >= total && reach >= total) return;
      // The rest is steps that run again and again; what is left out only lowers the bound.
      if (j >= (1 << 20)) return;
    }
  }

  double once() const {
    return 1 + std::floor(static_cast<double>(room_) / static_cast<double>(tape_));
  }

  // One group from the free start, then one for each further state that fits.
  double twice() const {
    double sum = once();
    const Bytes item = std::min(state_, tape_);
    for (Bytes left = room_; left >= 0 && sum < static_cast<double>(steps_); left -= item) {
      const std::int64_t tapes = left / tape_;
      sum += 1 + static_cast<double>(tapes);
    }
    return sum;
  }

  double reruns_in_fast() const {
    // Where nothing fits A_j = j, which needs no table.
    const bool alike = again_.size() == 1;
    if (!alike || fast_.size() < 2 || fast_[0] != 1 || fast_[1] != 2) return reruns(0, 0);
    const auto total = static_cast<double>(steps_);
    return total * (total - 1) / 2 * again_.front();
  }

  // Reruns when `items` are kept in slow tiers over the whole run and `tapes` of them are tapes of
  // the first sweep.
  double reruns(double items, double tapes) const {
    const auto total = static_cast<double>(steps_);
    double seconds = 0;
    for (std::size_t j = 0; j < fast_.size(); ++j) {
      double reach = items == 0 ? fast_[j] : (items + 1) * between_[j] + items;
      if (j == 0) reach = fast_[0] + (machine_.states_only ? 0 : tapes);
      double level = reach >= total ? 0 : rerun(total - reach);
      if (j == 0 && items == 0) level = std::max(level, rerun_once_);
      if (level == 0) break;
      seconds += level;
    }
    return seconds;
  }

  struct Lane {
    double write, read, slots;
  };
  // Seconds to move one item, and how many fit; the smallest item there is.
  std::vector<Lane> lanes(Bytes item) const {
    std::vector<Lane> out;
    out.reserve(machine_.platform.tiers.size());
    for (const Tier& tier : machine_.platform.tiers) {
      out.push_back({tier.write_seconds(item), tier.read_seconds(item),
                     std::floor(static_cast<double>(tier.capacity) / static_cast<double>(item))});
    }
    return out;
  }

  // Items written and read back within `total` seconds.
  double items_within(double total) const {
    double sum = 0;
    for (const Lane& lane : lanes(std::min(state_, tape_))) {
      if (lane.slots < 1) continue;
      sum += total / std::max(std::max(lane.write, lane.read), 1e-300);
    }
    return sum;
  }

  // Tapes that can leave during the first sweep and come back after it.
  double tapes_within(double total) const {
    const std::vector<Lane> all = lanes(tape_);
    double count = std::numeric_limits<double>::infinity();
    for (int round = 0; round < 60; ++round) {
      const double missing = static_cast<double>(steps_) - fast_[0] - count;
      const double after = backward_ + rerun(std::max(missing, 0.0));
      double sum = 0;
      for (const Lane& lane : all) {
        const double both = total / std::max(lane.write + lane.read, 1e-300);
        const double reads = std::max(total - sweep_, 0.0) / std::max(lane.read, 1e-300);
        const double writes = std::max(total - after, 0.0) / std::max(lane.write, 1e-300);
        sum += std::min({lane.slots, both, reads, writes});
      }
      if (sum >= count) break;
      count = sum;
    }
    return count;
  }

  double overlapped() const {
    double low = unavoidable_;
    double high = unavoidable_ + reruns(0, 0);
    const auto enough = [this](double total) {
      return total >= unavoidable_ + reruns(items_within(total), tapes_within(total));
    };
    if (enough(low)) return low;
    for (int round = 0; round < 100 && high - low > 1e-12 * high; ++round) {
      const double middle = low + (high - low) / 2;
      (enough(middle) ? high : low) = middle;
    }
    return low;
  }

  // With transfers in turn every slow item costs its write and its read.
  double in_turns() const {
    double price = std::numeric_limits<double>::infinity();
    for (const Lane& lane : lanes(std::min(state_, tape_))) {
      if (lane.slots >= 1) price = std::min(price, lane.write + lane.read);
    }
    double least = reruns(0, 0);
    if (std::isinf(price)) return unavoidable_ + least;
    const auto most = static_cast<double>(steps_);
    for (double items = 1; items <= most;) {
      const double next = std::max(items + 1, std::floor(items * 1.0005));
      // Between two counts: the price of the fewer, the reruns of the more.
      least = std::min(least, items * price + reruns(next - 1, next - 1));
      items = next;
    }
    return unavoidable_ + least;
  }

  const Machine& machine_;
  std::int64_t steps_;
  Bytes state_ = 0, tape_ = 0, room_ = 0;
  std::vector<double> again_;  // ascending sums of the cheapest reruns; one entry: all alike
  double sweep_ = 0, backward_ = 0, unavoidable_ = 0;
  double rerun_once_ = 0;  // uneven chains: the reruns of steps whose tapes are not held
  std::vector<double> fast_, between_;
};

}  // namespace

Bound bound(const Chain& chain, const Machine& machine) {
  if (chain.steps() == 0) return {0, "nothing to do"};
  const double seconds = Relaxation(chain, machine).seconds();
  const double once = chain.record_seconds(0, chain.steps()) +
                      chain.backward_seconds(0, chain.steps()) + 2 * chain.call();
  return {seconds, seconds > once ? "steps that run at most j times, for every j"
                                  : "every step is recorded and reversed once"};
}

}  // namespace ebb
