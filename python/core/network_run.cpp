// SPDX-License-Identifier: Apache-2.0
#include "python/core/network_run.h"

#include <cstring>
#include <map>
#include <mutex>
#include <sstream>

#include "ebb/core/at.h"
#include "ebb/core/bits.h"
#include "ebb/core/error.h"
#include "ebb/device/buffer.h"
#include "ebb/run/sizes.h"

namespace ebb::python {
namespace {

// What nets cost, measured once a process for each kind: runs that are made again, for sequences of
// another length too, need not measure.
struct Costs {
  StepCost step;
  double call = 0, copy_rate = 0;
};
std::mutex costs_lock;
std::map<std::string, Costs>& known_costs() {
  static std::map<std::string, Costs> costs;
  return costs;
}
std::optional<Costs> costs_of(const std::string& kind) {
  const std::lock_guard lock(costs_lock);
  const auto found = known_costs().find(kind);
  return found == known_costs().end() ? std::nullopt : std::optional(found->second);
}
void remember_costs(const std::string& kind, const Run& run) {
  const std::lock_guard lock(costs_lock);
  known_costs()[kind] = {run.chain().at(0), run.chain().call(), run.platform().copy_rate};
}

template <class Number>
class NumberRun : public NetworkRun {
 public:
  explicit NumberRun(const NetworkRunOptions& options)
      : options_(options),
        net_(options.network),
        order_(net_.time_steps(), net_.batch(), options.batch_sizes, options.reverse),
        initial_(at(net_.bytes(0).state)),
        final_(initial_.size()) {
    if (order_.is_packed()) net_.set_lengths(order_.lengths());
    fields_ = net_.state_fields();
    for (std::size_t l = 0; l < fields_.size(); ++l) {
      spikes_ = spikes_ || !net_.spike_gradient(static_cast<std::int64_t>(l)).empty();
    }
  }

  const std::vector<NetworkParameter>& layout() const override { return net_.layout(); }
  std::int64_t state_arrays() const override { return fields() + (spikes_ ? 1 : 0); }
  std::int64_t chunk() const override { return net_.chunk(); }
  Bytes plain_bytes() const override { return net_.plain_bytes(); }
  Bytes budget() const override { return options_.budget; }
  void set_budget(Bytes budget) override {
    if (budget == options_.budget) return;
    run_.reset();
    options_.budget = budget;
  }

  Bytes least_budget(const std::string& strategy) override {
    try {
      RunOptions options = run_options();
      options.budget = 0;
      options.strategy = strategy;
      const Run run(net_, std::move(options));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::infeasible_budget || !error.least_budget()) throw;
      return *error.least_budget();
    }
    return 0;
  }

  Chain chain() const override {
    const std::optional<Costs> known = costs_of(kind());
    const Chain seconds = known ? Chain::uniform(net_.steps(), known->step, known->call)
                                : Chain::uniform(net_.steps(), {});
    return chain_of(net_, !options_.tiers.empty(), net_.steps(), &seconds);
  }

  void forward(const NetworkArrays& arrays) override {
    const Attached attached(*this, arrays);
    if (!run_) make_run();
    run_->forward(std::span<const std::byte>(initial_), std::span(final_));
    writer_.flush();
    give_state(arrays.final);
  }

  void advance(const NetworkArrays& arrays) override {
    const Attached attached(*this, arrays);
    const StepBytes bytes = net_.bytes(0);
    const Buffer scratch(Ledger(options_.budget), "advance", bytes.scratch);
    final_ = initial_;
    net_.begin();
    // As many steps as take a moment, so that `check` is asked.
    const std::int64_t steps = net_.steps(), some = std::max<std::int64_t>(1, steps / 64);
    for (std::int64_t from = 0; from < steps; from += some) {
      net_.advance({from, std::min(steps, from + some), true}, final_.data(), scratch.data());
      if (options_.check) options_.check();
    }
    writer_.flush();
    give_state(arrays.final);
  }

  void backward(const NetworkArrays& given, const NetworkArrays& found) override {
    if (!run_) fail(ErrorCode::invalid_argument, "network run: backward needs a forward before it");
    const Detached detached(*this);
    net_.set_input(reader_.over(order_, given.inputs, net_.inputs()));
    if (given.outputs) {
      net_.set_output_gradient(gradient_reader_.over(order_, given.outputs, net_.outputs()));
    }
    if (found.inputs) {
      net_.set_input_gradient(writer_.over(order_, found.inputs, net_.inputs()));
    }
    take_state(given.final, final_, false);
    run_->backward(std::span<const std::byte>(final_), std::span(of_initial()));
    writer_.flush();
    give_gradients(found);
  }

  Report report() const override {
    if (!run_)
      fail(ErrorCode::invalid_argument, "network run: there is no report before a forward");
    return run_->report();
  }

 private:
  // The network forgets the caller's arrays when a call ends, however it ends.
  struct Detached {
    explicit Detached(NumberRun& run) : own(run) {}
    Detached(const Detached&) = delete;
    Detached& operator=(const Detached&) = delete;
    ~Detached() {
      own.net_.set_input({});
      own.net_.set_output({});
      own.net_.set_output_gradient({});
      own.net_.set_input_gradient({});
    }
    NumberRun& own;
  };
  struct Attached : Detached {
    Attached(NumberRun& run, const NetworkArrays& arrays) : Detached(run) {
      run.net_.set_input(run.reader_.over(run.order_, arrays.inputs, run.net_.inputs()));
      run.net_.set_output(run.writer_.over(run.order_, arrays.outputs, run.net_.outputs()));
      run.take_parameters(arrays.parameters);
      run.take_state(arrays.initial, run.initial_, true);
    }
  };

  std::int64_t fields() const {
    return fields_.front().bytes / (net_.batch() * net_.outputs() * Bytes{sizeof(Number)});
  }

  RunOptions run_options() const {
    RunOptions options;
    options.budget = options_.budget;
    options.strategy = options_.strategy;
    options.tiers = options_.tiers;
    options.ledger = options_.ledger;
    options.profile.step_seconds = 0.1;
    if (options_.check) options.progress = [this](const Progress&) { options_.check(); };
    return options;
  }

  // All that the time of a step depends on.
  std::string kind() const {
    std::ostringstream text;
    const NetworkOptions& own = options_.network;
    text << sizeof(Number) << ' ' << own.batch << ' ' << net_.chunk() << ' ' << own.threads << ' '
         << own.input_gradient << ' ' << order_.is_packed() << ' ' << options_.tiers.size();
    for (const LayerOptions& layer : own.layers) {
      text << ' ' << layer.cell << ' ' << layer.input << ' ' << layer.hidden << ' '
           << layer.recurrent << ' ' << layer.surrogate;
    }
    return text.str();
  }

  void make_run() {
    RunOptions options = run_options();
    const std::string own = kind();
    const std::optional<Costs> known = costs_of(own);
    if (known) {
      options.chain = Chain::uniform(net_.steps(), known->step, known->call);
      if (options_.tiers.empty()) options.platform = Platform{.copy_rate = known->copy_rate};
    }
    run_.emplace(net_, std::move(options));
    if (!known) remember_costs(own, *run_);
  }

  void take_parameters(const std::vector<std::uintptr_t>& from) {
    check_count("parameters", from.size(), net_.layout().size());
    for (std::size_t i = 0; i < from.size(); ++i) {
      const NetworkParameter& own = net_.layout()[i];
      std::copy_n(reinterpret_cast<const Number*>(from[i]), own.size,
                  net_.values().data() + own.offset);
    }
  }

  static void check_count(const char* what, std::size_t given, std::size_t wanted) {
    if (given == wanted) return;
    fail(ErrorCode::invalid_argument, "network run: ", given, " arrays of ", what,
         "; there must be ", wanted);
  }

  // Calls `each` with the places of a layer's field of one sample: in an array and in a state.
  template <class Each>
  void for_each_row(std::int64_t field, std::span<std::byte> state, const Each& each) const {
    const std::int64_t hidden = net_.outputs(), batch = net_.batch();
    for (std::size_t l = 0; l < fields_.size(); ++l) {
      auto* const own = reinterpret_cast<Number*>(state.data() + fields_[l].offset);
      for (std::int64_t b = 0; b < batch; ++b) {
        each((static_cast<std::int64_t>(l) * batch + b) * hidden,
             own + (b * fields() + field) * hidden);
      }
    }
  }

  // A state, or, without spikes, an adjoint.
  void take_state(const std::vector<std::uintptr_t>& from, std::span<std::byte> state,
                  bool with_spikes) {
    std::ranges::fill(state, std::byte{0});
    if (from.empty()) return;
    check_count("a state", from.size(), at(state_arrays()));
    for (std::int64_t f = 0; f < fields(); ++f) {
      const auto* const array = reinterpret_cast<const Number*>(from[at(f)]);
      if (array == nullptr) continue;
      for_each_row(f, state, [&](std::int64_t place, Number* to) {
        std::copy_n(array + place, net_.outputs(), to);
      });
    }
    if (with_spikes && spikes_ && from.back() != 0) take_spikes(from.back(), state);
  }

  void take_spikes(std::uintptr_t address, std::span<std::byte> state) {
    const std::int64_t hidden = net_.outputs(), batch = net_.batch(), words = words_of(hidden);
    const auto* from = reinterpret_cast<const Number*>(address);
    for (std::size_t l = 0; l < fields_.size(); ++l) {
      std::uint64_t* bits = net_.spikes(static_cast<std::int64_t>(l), state).data();
      for (std::int64_t b = 0; b < batch; ++b, bits += words, from += hidden) {
        for (std::int64_t u = 0; u < hidden; ++u) {
          if (from[u] != Number{0} && from[u] != Number{1}) {
            fail(ErrorCode::invalid_argument, "an initial spike is ", from[u],
                 "; spikes are 0 or 1");
          }
          bits[u / 64] |= static_cast<std::uint64_t>(from[u] == Number{1}) << (u % 64);
        }
      }
    }
  }

  void give_state(const std::vector<std::uintptr_t>& to) {
    if (to.empty()) return;
    check_count("a state", to.size(), at(state_arrays()));
    give_fields(to, final_);
    if (!spikes_ || to.back() == 0) return;
    auto* array = reinterpret_cast<Number*>(to.back());
    const std::int64_t hidden = net_.outputs(), batch = net_.batch(), words = words_of(hidden);
    for (std::size_t l = 0; l < fields_.size(); ++l) {
      const std::uint64_t* bits = net_.spikes(static_cast<std::int64_t>(l), final_).data();
      for (std::int64_t b = 0; b < batch; ++b, bits += words, array += hidden) {
        for (std::int64_t u = 0; u < hidden; ++u) {
          array[u] = static_cast<Number>(bits[u / 64] >> (u % 64) & 1);
        }
      }
    }
  }

  void give_fields(const std::vector<std::uintptr_t>& to, std::span<std::byte> state) const {
    for (std::int64_t f = 0; f < fields(); ++f) {
      auto* const array = reinterpret_cast<Number*>(to[at(f)]);
      if (array == nullptr) continue;
      for_each_row(f, state, [&](std::int64_t place, const Number* from) {
        std::copy_n(from, net_.outputs(), array + place);
      });
    }
  }

  void give_gradients(const NetworkArrays& found) {
    if (!found.initial.empty()) {
      check_count("a state", found.initial.size(), at(state_arrays()));
      give_fields(found.initial, of_initial_);
      if (spikes_ && found.initial.back() != 0) {
        auto* array = reinterpret_cast<Number*>(found.initial.back());
        for (std::size_t l = 0; l < fields_.size(); ++l) {
          const auto own = net_.spike_gradient(static_cast<std::int64_t>(l));
          array = std::copy(own.begin(), own.end(), array);
        }
      }
    }
    check_count("parameters", found.parameters.size(), net_.layout().size());
    for (std::size_t i = 0; i < found.parameters.size(); ++i) {
      if (found.parameters[i] == 0) continue;
      const NetworkParameter& own = net_.layout()[i];
      std::copy_n(net_.gradient().data() + own.offset, own.size,
                  reinterpret_cast<Number*>(found.parameters[i]));
    }
  }

  std::vector<std::byte>& of_initial() {
    of_initial_.resize(initial_.size());
    return of_initial_;
  }

  NetworkRunOptions options_;
  Network<Number> net_;
  RowOrder order_;
  std::vector<FieldShape> fields_;
  bool spikes_ = false;
  std::vector<std::byte> initial_, final_, of_initial_;
  RowReader<Number> reader_, gradient_reader_;
  RowWriter<Number> writer_;
  std::optional<Run> run_;
};

}  // namespace

template <class Number>
std::unique_ptr<NetworkRun> make_network_run(const NetworkRunOptions& options) {
  return std::make_unique<NumberRun<Number>>(options);
}
template std::unique_ptr<NetworkRun> make_network_run<float>(const NetworkRunOptions&);
template std::unique_ptr<NetworkRun> make_network_run<double>(const NetworkRunOptions&);

}  // namespace ebb::python
