// SPDX-License-Identifier: Apache-2.0
// A net of recurrent layers on a CUDA device: forward and backward in a budget of its memory, on arrays of the caller that lie there.
//
//   ebb::DeviceNetwork net({.time_steps = T, .batch = B, .layers = {{.cell = "lstm", .input = I, .hidden = H}}, .budget = 1_GiB});
//   net.forward(x, y);
//   net.backward(dy, dx);
//
// Needs a build with -DEBB_CUDA=ON, a GPU of compute capability 8.0 or more and, when it is made, cuBLAS 12 or 13.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ebb/cell/cell.h"
#include "ebb/core/bytes.h"
#include "ebb/device/ledger.h"
#include "ebb/plan/plan.h"
#include "ebb/run/network.h"
#include "ebb/run/report.h"

namespace ebb {

// Makes the inputs of time steps from `first` on: x is [steps,B,I] on the device, to be filled in the order of the stream. It is asked
// again for steps that run again, and in the backward pass, and must make the same.
using DeviceInputs =
    std::function<void(std::int64_t first, std::int64_t steps, void* x, void* stream)>;

// Sizes, layers and budgets of a DeviceNetwork.
struct DeviceNetworkOptions {
  std::int64_t time_steps = 0;  // T
  std::int64_t batch = 0;       // B
  // Lowest first. Cells: lstm, gru, rnn, rnn_relu, egru, lif, alif, adlif; the last may be linear or leaky. See docs/gpu.md for the sizes that
  // fit.
  std::vector<LayerOptions> layers = {};
  // Of inputs, outputs and what is multiplied: bf16, f16, tf32 for floats that products round, or f32 for floats of which they keep 21
  // bits. Sums are float32.
  std::string number = "bf16";

  // Bytes of the device's memory for states, tapes and what computing them takes. Beside it are standing_bytes().
  Bytes budget = kUnlimited;
  // Of the host's memory, for states that leave the device meanwhile: pinned, or where the system gives no such memory, common.
  Bytes host_budget = 0;
  // Time steps that a plan counts as one step; 0: chosen from the sizes and the budgets. Gradients are the same bits for every plan,
  // but not for every chunk.
  std::int64_t chunk = 0;
  std::string strategy = "auto";  // see PlanOptions
  // Inputs do not lie in memory, but are made chunk by chunk: forward_from, not forward. The budget has room for those of a chunk.
  bool makes_inputs = false;
  std::uint64_t seed = 1;  // of initial parameters

  // Shared with other networks: all of them together stay within it. Without one the network has its own, which the budget limits.
  std::optional<Ledger> ledger = {};
};

// The plan that such a network would run, made without a device: by figures of one, from sizes alone. Throws like the constructor for
// what is wrong with the options.
struct DevicePlan {
  std::int64_t chunk = 0;
  Bytes state_bytes = 0, tape_bytes = 0;  // of one chunk
  Bytes standing_bytes = 0;               // see DeviceNetwork
  std::int64_t state_size = 0;            // see DeviceNetwork
  std::int64_t parameter_size = 0;        // numbers that the network learns or keeps
  Plan plan;
};
DevicePlan device_plan(const DeviceNetworkOptions& options);
// Throws like the constructor where the device that is current does not take such a network, or where there is none; its memory is not
// looked at.
void check_device_takes(const DeviceNetworkOptions& options);

// Pointers are to memory of the device that was current when the network was made, which must be current in every call, at multiples
// of 16. Arrays over time are in the network's number: x and its gradient [T,B,I], y and its gradient [T,B,O]. States and their
// gradients are floats, of each layer [B,F,H], one after the other (lstm: h, c; others: h). Calls return at once, unless states go to
// host memory that is not pinned, whose copies the caller waits for; the work is on the stream. One thread at a time uses a network.
class DeviceNetwork {
 public:
  // Parameters are initialised as those of a Network. Throws Error(invalid_argument) for options that cannot be and for sizes that do
  // not fit the device, Error(infeasible_budget) with the least budget that works, Error(unavailable) where there is no CUDA, no
  // device or no cuBLAS, Error(out_of_memory) and Error(device) where CUDA fails.
  explicit DeviceNetwork(const DeviceNetworkOptions& options);
  ~DeviceNetwork();
  DeviceNetwork(DeviceNetwork&&) noexcept;
  DeviceNetwork& operator=(DeviceNetwork&&) noexcept;

  std::int64_t time_steps() const;
  std::int64_t batch() const;
  std::int64_t inputs() const;
  std::int64_t outputs() const;
  std::int64_t chunk() const;
  std::int64_t state_size() const;  // floats

  // A cudaStream_t, for all calls from now on; to begin with the default stream. It must be there until another one is set or the network
  // is gone: what a forward keeps is given back in its order. It waits for what the one before has been given. A forward whose backward
  // has not come is forgotten.
  void set_stream(void* stream);

  // Writes y and the final state, where they are not null. Without an initial state it is zeros. What is read here must stay as it is
  // until the work of backward is done. May be called again at any time, after an exception too: the run begins anew. Throws
  // Error(out_of_memory) if the device has less than the budget, Error(out_of_budget) if a shared ledger refuses, Error(device) where
  // CUDA fails.
  void forward(const void* x, void* y, const float* initial = nullptr, float* final = nullptr);
  // The same for inputs that a function makes: for sequences that are longer than memory, in the host's memory or anywhere else. What
  // it throws goes through.
  void forward_from(const DeviceInputs& inputs, void* y, const float* initial = nullptr,
                    float* final = nullptr);
  // Once after each forward: from the gradients of y and of the final state, zeros where they are null, to those of x and of the
  // initial state, where they are not null. That of the parameters is in gradient() then.
  void backward(const void* of_y, void* of_x = nullptr, const float* of_final = nullptr,
                float* of_initial = nullptr);

  // Parameters and their gradient are floats in the order of a Network's, of sparse weights those that there are: sums of many small
  // steps need more digits than the number has. What products read is rounded from them in each forward.
  const std::vector<NetworkParameter>& layout() const;
  // On the device, for an optimiser there: changed only between a backward and the next forward, on the same stream.
  float* values();
  const float* gradient() const;
  // To and from the host; they wait for the stream. Throw Error(invalid_argument) for another number of floats.
  void set_values(std::span<const float> from);
  void copy_values(std::span<float> to) const;
  void copy_gradient(std::span<float> to) const;

  const Plan& plan() const;
  // Of the last backward; waits for it. The peak of fast memory is what was really taken so far, and never more than the budget.
  Report report() const;
  // On the device, beside the budget: parameters, gradient, what products read, whole gradients of sparse weights and where these lie,
  // cuBLAS's workspace.
  Bytes standing_bytes() const;
  // What the driver holds for states, tapes and scratch, in use or not, until the network goes or others of the process find no memory;
  // in pieces, so that it may be more than the budget.
  Bytes reserved_bytes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ebb
