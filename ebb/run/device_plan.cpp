// SPDX-License-Identifier: Apache-2.0
#include "ebb/run/device_plan.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "ebb/cell/cell.h"
#include "ebb/cell/gated_layer.h"
#include "ebb/cell/readout_layer.h"
#include "ebb/cell/spiking_layer.h"
#include "ebb/core/error.h"
#include "ebb/device/cuda_pool.h"
#include "ebb/plan/bound.h"
#include "ebb/plan/strategies.h"

namespace ebb {
namespace {

// Round figures of an H200 (docs/results/pytorch.md has measured ones). They say what is worth while, never what is computed, so that
// another GPU runs the same plan; and no clock is read, so that every process has the same chunk and the same bits.
constexpr double kStepSeconds =
    2e-6;  // a time step that waits for the one before, whatever its size
constexpr double kOperations = 3e14;   // of products, a second
constexpr double kCallSeconds = 2e-5;  // a chunk of one layer: what the host takes to ask for it
constexpr double kBackwards = 2.2;     // how much longer than forward
constexpr double kMemoryRate = 2e12;   // bytes a second within the device
constexpr double kHostRate = 2e10;     // between device and host
constexpr double kHostSeconds = 1e-5;

constexpr std::int64_t kLongestChunk = 512;
// Plans of long sequences take up to seconds to make; a third was never faster where it was tried.
constexpr int kMostPlans = 2;

struct CellWord {
  std::string_view name;
  GatedCell cell;
};
constexpr std::array kCellWords = {
    CellWord{"lstm", GatedCell::lstm}, CellWord{"gru", GatedCell::gru},
    CellWord{"rnn", GatedCell::rnn_tanh}, CellWord{"rnn_relu", GatedCell::rnn_relu},
    CellWord{"egru", GatedCell::egru}};

struct SpikingWord {
  std::string_view name;
  SpikingCell cell;
};
constexpr std::array kSpikingWords = {SpikingWord{"lif", SpikingCell::lif},
                                      SpikingWord{"alif", SpikingCell::alif},
                                      SpikingWord{"adlif", SpikingCell::adlif}};

struct NumberWord {
  std::string_view name;
  GatedNumber number;
};
constexpr std::array kNumberWords = {
    NumberWord{"bf16", GatedNumber::bf16}, NumberWord{"f16", GatedNumber::f16},
    NumberWord{"tf32", GatedNumber::tf32}, NumberWord{"f32", GatedNumber::f32}};

GatedNumber number_of(const std::string& word) {
  const auto found = std::ranges::find(kNumberWords, word, &NumberWord::name);
  if (found == kNumberWords.end()) {
    fail(ErrorCode::invalid_argument, "number is '", word, "'; it must be bf16, f16, tf32 or f32");
  }
  return found->number;
}

void refuse(std::size_t layer, const std::string& what) {
  fail(ErrorCode::invalid_argument, "layer ", layer, " ", what);
}

// Null: it does not spike.
const SpikingWord* spiking_word(const std::string& cell) {
  const auto found = std::ranges::find(kSpikingWords, cell, &SpikingWord::name);
  return found == kSpikingWords.end() ? nullptr : &*found;
}

Surrogate surrogate_of(const LayerOptions& own, Constants<float>& constants) {
  const auto cell = std::ranges::find(cells(), own.cell, &CellRow::name);
  const std::string& name = own.surrogate.empty() ? cell->surrogate : own.surrogate;
  const auto row = std::ranges::find(surrogates(), name, &SurrogateRow::name);
  constants.sharpness = static_cast<float>(own.sharpness.value_or(row->sharpness));
  return static_cast<Surrogate>(row - surrogates().begin());
}

std::unique_ptr<const DeviceLayer> spiking_layer(const LayerOptions& own, std::size_t k,
                                                 const DeviceSizes& sizes) {
  if (own.synaptic) refuse(k, "has synaptic currents, which a device does not run");
  if (own.max_activity != 1) refuse(k, "has max_activity, which a device does not run");
  SpikingLayerOptions options{sizes};
  options.cell = spiking_word(own.cell)->cell;
  options.bias = own.bias;
  options.recurrent = own.recurrent;
  options.constants.hard = own.hard_reset ? 1 : 0;
  options.constants.attached = own.attached_reset ? 1 : 0;
  options.constants.normalised = own.normalised ? 1 : 0;
  options.constants.rest = static_cast<float>(own.rest);
  if (own.gradient_threshold) options.constants.least = static_cast<float>(*own.gradient_threshold);
  options.surrogate = surrogate_of(own, options.constants);
  options.learns_threshold = own.train_threshold;
  options.learns_others = own.train_tau;
  return std::make_unique<SpikingLayer>(options);
}

std::unique_ptr<const DeviceLayer> gated_layer(const LayerOptions& own, std::size_t k,
                                               const DeviceSizes& sizes) {
  const auto word = std::ranges::find(kCellWords, own.cell, &CellWord::name);
  if (word == kCellWords.end())
    refuse(k, "is of the cell '" + own.cell + "', which a device does not run");
  if (!own.recurrent)
    refuse(k, "has no recurrent weights, which " + own.cell + " needs on a device");
  GatedLayerOptions options{sizes};
  options.cell = word->cell;
  options.bias = own.bias;
  if (options.cell == GatedCell::egru) {
    Constants<float> constants;
    options.surrogate = surrogate_of(own, constants);
    options.sharpness = constants.sharpness;
    options.learns_threshold = own.train_threshold;
  }
  return std::make_unique<GatedLayer>(options);
}

bool is_readout(const std::string& cell) { return cell == "linear" || cell == "leaky"; }

std::unique_ptr<const DeviceLayer> readout_layer(const LayerOptions& own, std::size_t k,
                                                 bool is_last, const DeviceSizes& sizes) {
  if (k == 0) refuse(k, "is a readout; on a device there must be a layer below it");
  if (!is_last) refuse(k, "is a readout; on a device it must be the last");
  ReadoutLayerOptions options{sizes};
  options.leaky = own.cell == "leaky";
  options.bias = own.bias;
  options.learns_tau = own.train_tau;
  return std::make_unique<ReadoutLayer>(options);
}

// Which weights of a layer there are, for stacks of any chunk.
struct LayerPatterns {
  std::shared_ptr<const Pattern> input, recurrent;  // null: all
};
using Patterns = std::vector<LayerPatterns>;

std::shared_ptr<const Pattern> copy_of(const Pattern* pattern) {
  return pattern == nullptr ? nullptr : std::make_shared<const Pattern>(*pattern);
}

Patterns patterns_of(const Network<float>& net, std::size_t layers) {
  Patterns found;
  for (std::int64_t k = 0; k < static_cast<std::int64_t>(layers); ++k)
    found.push_back({copy_of(net.input_pattern(k)), copy_of(net.recurrent_pattern(k))});
  return found;
}

DeviceStack::Layers layers_of(const DeviceNetworkOptions& options, const Patterns& patterns,
                              std::int64_t chunk) {
  DeviceStack::Layers layers;
  DeviceSizes sizes;
  sizes.number = number_of(options.number);
  sizes.chunk = chunk;
  sizes.batch = options.batch;
  for (std::size_t k = 0; k < options.layers.size(); ++k) {
    const LayerOptions& own = options.layers[k];
    sizes.inputs = k == 0 ? own.input : options.layers[k - 1].hidden;
    sizes.hidden = own.hidden;
    sizes.input_pattern = patterns[k].input;
    sizes.recurrent_pattern = patterns[k].recurrent;
    const bool is_last = k + 1 == options.layers.size();
    layers.push_back(is_readout(own.cell)                ? readout_layer(own, k, is_last, sizes)
                     : spiking_word(own.cell) != nullptr ? spiking_layer(own, k, sizes)
                                                         : gated_layer(own, k, sizes));
    const std::int64_t each = units_together(sizes.number);
    if (layers.back()->is_recurrent() && own.hidden % each != 0) {
      fail(ErrorCode::invalid_argument, "layer ", k, " has ", own.hidden,
           " units; on a device units that read each other must be a multiple of ", each, " in ",
           options.number);
    }
  }
  return layers;
}

// All that a Network checks as well it has checked.
void check(const DeviceNetworkOptions& options, const Patterns& patterns) {
  if (options.budget < 0 || options.host_budget < 0) {
    fail(ErrorCode::invalid_argument, "the budgets are ", options.budget, " and ",
         options.host_budget, " bytes; they must be 0 or more");
  }
  layers_of(options, patterns, 1);
}

Chain chain_of(const DeviceStack& stack, const DeviceNetworkOptions& options) {
  const auto chunk = static_cast<double>(stack.chunk());
  double seconds = 0;
  for (const auto& layer : stack.layers()) {
    const auto weights = static_cast<double>(layer->multiplied_size());
    seconds +=
        kCallSeconds + chunk * ((layer->is_recurrent() ? kStepSeconds : 0) +
                                2 * weights * static_cast<double>(stack.batch()) / kOperations);
  }
  StepCost cost;
  cost.state = CudaPool::rounded(stack.state_bytes());
  cost.tape = CudaPool::rounded(stack.tape_bytes());
  cost.adjoint =
      2 * CudaPool::rounded(stack.adjoint_bytes());  // that before a step beside that after
  // With the state after a step, which is made beside the one before.
  cost.scratch = CudaPool::rounded(stack.scratch_bytes()) + cost.state;
  if (options.makes_inputs) {
    cost.scratch +=
        CudaPool::rounded(stack.chunk() * options.batch * stack.inputs() * stack.number_bytes());
  }
  cost.forward = seconds;
  cost.record = seconds + static_cast<double>(cost.tape) / kMemoryRate;
  cost.backward = kBackwards * seconds + static_cast<double>(cost.tape) / kMemoryRate;
  const std::int64_t steps = (options.time_steps + stack.chunk() - 1) / stack.chunk();
  return Chain::uniform(steps, cost);
}

Platform platform_of(const DeviceNetworkOptions& options, Bytes state) {
  Platform platform;
  platform.fast = options.budget;
  platform.copy_rate = kMemoryRate;
  if (options.host_budget > 0 && options.host_budget < state) {
    fail(ErrorCode::infeasible_budget, "host_budget is ", options.host_budget,
         " bytes, but a state of this network has ", state, "; give as many at least, or 0");
  }
  if (options.host_budget > 0) {
    Tier& host = platform.tiers.emplace_back();
    host.name = "host";
    host.capacity = options.host_budget;
    host.write_rate = host.read_rate = kHostRate;
    host.write_latency = host.read_latency = kHostSeconds;
    host.duplex = false;  // one stream copies both ways
  }
  return platform;
}

PlannedStack planned(const DeviceNetworkOptions& options, const Patterns& patterns,
                     std::int64_t chunk) {
  auto stack = std::make_unique<const DeviceStack>(layers_of(options, patterns, chunk));
  Chain chain = chain_of(*stack, options);
  PlanOptions wanted;
  wanted.strategy = options.strategy;
  wanted.tapes_stay = true;
  auto plan = std::make_shared<const Plan>(
      make_plan(chain, platform_of(options, chain.at(0).state), wanted));
  return {std::move(stack), std::move(chain), std::move(plan)};
}

struct ChunkOffer {
  std::int64_t chunk = 0;
  double at_least = 0;  // seconds, of any plan
};

// The powers of two that may fit, the most promising first. The shortest is one of them: where nothing fits, it says what does.
std::vector<ChunkOffer> chunk_offers(const DeviceNetworkOptions& options,
                                     const Patterns& patterns) {
  std::vector<ChunkOffer> offers;
  std::int64_t chunk = kLongestChunk;
  while (chunk > options.time_steps) chunk /= 2;
  for (; chunk >= 1; chunk /= 2) {
    const Chain chain = chain_of(DeviceStack(layers_of(options, patterns, chunk)), options);
    const StepCost& cost = chain.at(0);
    if (chunk > 1 && cost.state + cost.tape + cost.adjoint + cost.scratch > options.budget)
      continue;
    Machine machine;
    machine.platform = platform_of(options, cost.state);
    machine.tapes_stay = true;
    offers.push_back({chunk, bound(chain, machine).seconds});
  }
  std::ranges::stable_sort(offers, {}, &ChunkOffer::at_least);
  return offers;
}

// The fastest by what plans predict. Long chunks take fewer calls; short ones leave room for more states, so that steps run less often.
PlannedStack fastest(const DeviceNetworkOptions& options, const Patterns& patterns) {
  std::optional<PlannedStack> best;
  std::optional<Error> refused;
  int plans = 0;
  for (const ChunkOffer& offer : chunk_offers(options, patterns)) {
    if (plans == kMostPlans || (best && offer.at_least >= best->plan->prediction.seconds)) break;
    try {
      PlannedStack found = planned(options, patterns, offer.chunk);
      ++plans;
      if (!best || found.plan->prediction.seconds < best->plan->prediction.seconds)
        best = std::move(found);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::infeasible_budget) throw;
      if (offer.chunk == 1) refused = error;  // the shortest needs least
    }
  }
  if (!best) throw *refused;
  return std::move(*best);
}

}  // namespace

PlannedStack plan_stack(const DeviceNetworkOptions& options, const Network<float>& same) {
  const Patterns patterns = patterns_of(same, options.layers.size());
  check(options, patterns);
  if (options.chunk == 0) return fastest(options, patterns);
  return planned(options, patterns, std::min(options.chunk, options.time_steps));
}

}  // namespace ebb
