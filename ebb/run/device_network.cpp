// SPDX-License-Identifier: Apache-2.0
#include "ebb/run/device_network.h"

#include <cstdint>
#include <utility>

#include "ebb/core/error.h"
#include "ebb/device/cuda_products.h"
#include "ebb/device/cuda_stream.h"
#include "ebb/device/device_memory.h"
#include "ebb/device/pinned_memory.h"
#include "ebb/run/device_plan.h"
#include "ebb/run/device_step.h"
#include "ebb/run/handle_run.h"

namespace ebb {
namespace {

// The same net on the CPU: it checks the options, and has the parameters' order, first values and, where weights are sparse, patterns.
Network<float> on_cpu(const DeviceNetworkOptions& options) {
  NetworkOptions same;
  same.time_steps = options.time_steps;
  same.batch = options.batch;
  same.layers = options.layers;
  same.chunk = options.chunk;
  same.threads = 1;
  same.seed = options.seed;
  return Network<float>(same);
}

PlannedStack fitting_stack(const DeviceNetworkOptions& options, const Network<float>& same) {
  PlannedStack planned = plan_stack(options, same);
  const std::string missing = cuda_missing();
  if (!missing.empty()) fail(ErrorCode::unavailable, "DeviceNetwork: ", missing);
  const DeviceStack::Layers& layers = planned.stack->layers();
  for (std::size_t k = 0; k < layers.size(); ++k) {
    const std::string why = layers[k]->unfit();
    if (why.empty()) continue;
    fail(ErrorCode::invalid_argument, "layer ", k, ", ", options.layers[k].cell, " with ",
         options.layers[k].hidden, " units in ", options.number,
         ", cannot run on this device: ", why);
  }
  return planned;
}

void check_aligned(const char* what, const void* pointer) {
  constexpr std::uintptr_t at_once = 16;  // bytes that kernels read
  if (reinterpret_cast<std::uintptr_t>(pointer) % at_once == 0) return;
  fail(ErrorCode::invalid_argument, what, " is at an address that is no multiple of ", at_once);
}

void check_count(const char* what, std::size_t given, Bytes bytes) {
  const auto size = static_cast<std::size_t>(bytes) / sizeof(float);
  if (given == size) return;
  fail(ErrorCode::invalid_argument, what, " of ", given, " floats; the network has ", size,
       " parameters");
}

Bytes float_bytes(std::int64_t count) { return count * static_cast<Bytes>(sizeof(float)); }

Ledger ledger_of(const DeviceNetworkOptions& options) {
  return options.ledger ? *options.ledger : Ledger(options.budget);
}

}  // namespace

DevicePlan device_plan(const DeviceNetworkOptions& options) {
  const PlannedStack planned = plan_stack(options, on_cpu(options));
  const DeviceStack& stack = *planned.stack;
  const Bytes standing = 2 * float_bytes(stack.parameter_size()) + stack.prepared_bytes() +
                         stack.sums_bytes() + CudaProducts::kWorkspace;
  return {stack.chunk(), planned.chain.at(0).state, planned.chain.at(0).tape,
          standing,      stack.state_size(),        stack.parameter_size(),
          *planned.plan};
}

void check_device_takes(const DeviceNetworkOptions& options) {
  fitting_stack(options, on_cpu(options));
}

struct DeviceNetwork::State {
  explicit State(const DeviceNetworkOptions& given) : State(given, on_cpu(given)) {}
  State(const DeviceNetworkOptions& given, Network<float>&& net)
      : State(given, std::move(net), fitting_stack(given, net)) {}
  State(const DeviceNetworkOptions& given, Network<float>&& net, PlannedStack planned)
      : time_steps(given.time_steps),
        batch(given.batch),
        makes_inputs(given.makes_inputs),
        stack(std::move(planned.stack)),
        device(cuda_device()),
        layout(net.layout()),
        values(float_bytes(stack->parameter_size())),
        gradient(values.size()),
        prepared(stack->prepared_bytes()),
        sums(stack->sums_bytes()),
        workspace(CudaProducts::kWorkspace),
        pool(ledger_of(given), "the network on the device"),
        step(*stack, time_steps, pool, planned.plan->prediction.peak[0], products, prepared.data(),
             host_memory(given, *planned.plan), host_bytes(*planned.plan)),
        run(step, planned.chain, planned.plan, Ledger()) {
    values.upload(net.values());
    stack->begin(prepared.data(), stream);
  }

  static Bytes host_bytes(const Plan& plan) {
    return plan.prediction.peak.size() > 1 ? plan.prediction.peak[1] : 0;
  }
  PinnedMemory host_memory(const DeviceNetworkOptions& given, const Plan& plan) {
    PinnedMemory memory(Ledger(given.host_budget), "states of the network in the host's memory",
                        host_bytes(plan));
    pinned = memory.is_pinned();
    return memory;
  }

  void check_current() const {
    const int current = cuda_device();
    if (current == device) return;
    fail(ErrorCode::invalid_argument, "the network is on CUDA device ", device, ", but device ",
         current, " is current");
  }

  // What an exception leaves is forgotten, so that the next forward begins anew.
  template <class Work>
  void guarded(const Work& work) {
    try {
      work();
    } catch (...) {
      run.abandon();
      step.clear();
      throw;
    }
  }

  void forward(DeviceStep::Forward given) {
    check_current();
    check_aligned("y", given.y);
    check_aligned("the initial state", given.initial);
    check_aligned("the final state", given.final);
    went_forward = is_done = false;
    run.abandon();
    step.clear();
    given.stream = stream;
    guarded([&] {
      products.use(stream, workspace.data());
      forward_begins.record(stream);
      stack->prepare(reinterpret_cast<const float*>(values.data()), prepared.data(), stream);
      step.begin(given);
      run.forward();
      step.end_forward();
      forward_ends.record(stream);
    });
    went_forward = true;
  }

  std::int64_t time_steps, batch;
  bool makes_inputs;
  std::unique_ptr<const DeviceStack> stack;
  int device;
  bool pinned = true;
  void* stream = nullptr;
  std::vector<NetworkParameter> layout;
  DeviceMemory values, gradient, prepared, sums, workspace;
  CudaProducts products;
  CudaPool pool;
  DeviceStep step;
  HandleRun run;
  CudaEvent forward_begins, forward_ends, backward_begins, backward_ends;
  bool went_forward = false, is_done = false;
};

DeviceNetwork::DeviceNetwork(const DeviceNetworkOptions& options)
    : state_(std::make_unique<State>(options)) {}
DeviceNetwork::~DeviceNetwork() = default;
DeviceNetwork::DeviceNetwork(DeviceNetwork&&) noexcept = default;
DeviceNetwork& DeviceNetwork::operator=(DeviceNetwork&&) noexcept = default;

std::int64_t DeviceNetwork::time_steps() const { return state_->time_steps; }
std::int64_t DeviceNetwork::batch() const { return state_->batch; }
std::int64_t DeviceNetwork::inputs() const { return state_->stack->inputs(); }
std::int64_t DeviceNetwork::outputs() const { return state_->stack->outputs(); }
std::int64_t DeviceNetwork::chunk() const { return state_->stack->chunk(); }
std::int64_t DeviceNetwork::state_size() const { return state_->stack->state_size(); }

void DeviceNetwork::set_stream(void* stream) {
  State& own = *state_;
  if (stream == own.stream) return;
  own.check_current();
  CudaEvent done;
  done.record(own.stream);
  done.hold(stream);
  own.went_forward = false;
  own.run.abandon();
  own.step.clear();
  own.stream = stream;
}

void DeviceNetwork::forward(const void* x, void* y, const float* initial, float* final) {
  if (state_->makes_inputs) {
    fail(ErrorCode::invalid_argument,
         "the network was made for inputs that a function makes: call forward_from");
  }
  if (x == nullptr) fail(ErrorCode::invalid_argument, "the network needs an input x");
  check_aligned("x", x);
  state_->forward({.x = static_cast<const std::byte*>(x),
                   .y = static_cast<std::byte*>(y),
                   .initial = initial,
                   .final = final});
}

void DeviceNetwork::forward_from(const DeviceInputs& inputs, void* y, const float* initial,
                                 float* final) {
  if (!state_->makes_inputs) {
    fail(ErrorCode::invalid_argument,
         "the network was made for inputs in an array: set makes_inputs, so that the budget has "
         "room for those that a function makes");
  }
  if (!inputs) fail(ErrorCode::invalid_argument, "the network needs a function that makes inputs");
  state_->forward(
      {.inputs = inputs, .y = static_cast<std::byte*>(y), .initial = initial, .final = final});
}

void DeviceNetwork::backward(const void* of_y, void* of_x, const float* of_final,
                             float* of_initial) {
  State& own = *state_;
  own.check_current();
  if (!own.went_forward) {
    fail(ErrorCode::invalid_argument,
         "backward comes once after each forward that ended; there was none");
  }
  check_aligned("the gradient of y", of_y);
  check_aligned("the gradient of x", of_x);
  check_aligned("the gradient of the final state", of_final);
  check_aligned("the gradient of the initial state", of_initial);
  own.went_forward = false;
  own.guarded([&] {
    own.backward_begins.record(own.stream);
    own.step.begin_backward({static_cast<const std::byte*>(of_y), static_cast<std::byte*>(of_x),
                             of_final, of_initial, reinterpret_cast<float*>(own.gradient.data()),
                             own.sums.data()});
    own.run.backward();
    own.step.end_backward();
    own.backward_ends.record(own.stream);
  });
  own.is_done = true;
}

const std::vector<NetworkParameter>& DeviceNetwork::layout() const { return state_->layout; }
float* DeviceNetwork::values() { return reinterpret_cast<float*>(state_->values.data()); }
const float* DeviceNetwork::gradient() const {
  return reinterpret_cast<const float*>(state_->gradient.data());
}

void DeviceNetwork::set_values(std::span<const float> from) {
  check_count("values", from.size(), state_->values.size());
  state_->check_current();
  state_->values.upload(from, state_->stream);
}
void DeviceNetwork::copy_values(std::span<float> to) const {
  check_count("values", to.size(), state_->values.size());
  state_->check_current();
  state_->values.download(to, state_->stream);
}
void DeviceNetwork::copy_gradient(std::span<float> to) const {
  check_count("a gradient", to.size(), state_->gradient.size());
  state_->check_current();
  state_->gradient.download(to, state_->stream);
}

const Plan& DeviceNetwork::plan() const { return state_->run.plan(); }

Report DeviceNetwork::report() const {
  const State& own = *state_;
  Report report = own.run.report();
  report.callers = standing_bytes();
  if (!own.is_done) return report;
  report.measured.peak[0] = own.pool.peak();
  report.measured.seconds = own.forward_ends.seconds_since(own.forward_begins) +
                            own.backward_ends.seconds_since(own.backward_begins);
  if (!own.pinned) {
    report.remarks.emplace_back(
        "the system gave no pinned memory: copies between device and host are slow");
  }
  return report;
}

Bytes DeviceNetwork::standing_bytes() const {
  const State& own = *state_;
  return own.values.size() + own.gradient.size() + own.prepared.size() + own.sums.size() +
         own.workspace.size();
}
Bytes DeviceNetwork::reserved_bytes() const { return state_->pool.reserved(); }

}  // namespace ebb
