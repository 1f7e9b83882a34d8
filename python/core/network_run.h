// SPDX-License-Identifier: Apache-2.0
// A network and its run, over the arrays of a caller that knows nothing of either's memory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ebb/run/network.h"
#include "ebb/run/run.h"
#include "python/core/row_order.h"

namespace ebb::python {

struct NetworkRunOptions {
  NetworkOptions network;
  Bytes budget = kUnlimited;
  std::string strategy = "auto";
  std::vector<SlowTier> tiers = {};
  std::optional<Ledger> ledger = {};           // shared with other runs
  std::vector<std::int64_t> batch_sizes = {};  // of a packed sequence
  bool reverse = false;              // from the last time step of each sample to its first
  std::function<void()> check = {};  // called now and then; what it throws ends the run
};

// What a call reads and writes. Addresses are of whole arrays of the network's numbers, 0: none.
struct NetworkArrays {
  Strided inputs = {}, outputs = {};  // or their gradients
  // Each field of the state, and for cells that spike the spikes behind them: [L,B,H].
  std::vector<std::uintptr_t> initial = {}, final = {};
  std::vector<std::uintptr_t> parameters = {};  // in the order of layout()
};

class NetworkRun {
 public:
  NetworkRun() = default;
  NetworkRun(const NetworkRun&) = delete;
  NetworkRun& operator=(const NetworkRun&) = delete;
  virtual ~NetworkRun() = default;

  virtual const std::vector<NetworkParameter>& layout() const = 0;
  // How many arrays a state is.
  virtual std::int64_t state_arrays() const = 0;
  virtual std::int64_t chunk() const = 0;
  virtual Bytes plain_bytes() const = 0;
  virtual Bytes least_budget(const std::string& strategy) = 0;
  // As a run books it. Its seconds are measured ones where a run of its kind was made before;
  // otherwise a backward takes as long as two forwards.
  virtual Chain chain() const = 0;
  virtual Bytes budget() const = 0;
  // Gives up the memory that a run holds.
  virtual void set_budget(Bytes budget) = 0;

  // From inputs, initial and parameters to outputs and final. A run is planned when there is none.
  // Throws what Run throws, and Error(invalid_argument) for initial spikes other than 0 and 1.
  virtual void forward(const NetworkArrays& arrays) = 0;
  // The same, keeping nothing for a backward.
  virtual void advance(const NetworkArrays& arrays) = 0;
  // After forward: `given` has the inputs again, since the caller may have moved them, and the
  // gradients of outputs and final; `found` gets those of inputs, initial and parameters, where it
  // has an address.
  virtual void backward(const NetworkArrays& given, const NetworkArrays& found) = 0;
  virtual Report report() const = 0;
};

// Number is float or double.
template <class Number>
std::unique_ptr<NetworkRun> make_network_run(const NetworkRunOptions& options);

}  // namespace ebb::python
