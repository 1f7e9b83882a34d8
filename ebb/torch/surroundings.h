// SPDX-License-Identifier: Apache-2.0
// What a function sees beside its arguments and must see again when it runs again: random numbers,
// autocast, and buffers that it changes.
#pragma once

#include <ATen/autocast_mode.h>
#include <torch/torch.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "ebb/torch/options.h"

namespace ebb::torch::detail {

// Autocast of this thread, as it is now.
class Autocast {
 public:
  explicit Autocast(at::Device device) {
    add(at::kCPU);
    if (!device.is_cpu()) add(device.type());
  }
  bool enabled() const {
    return std::any_of(kinds_.begin(), kinds_.end(), [](const Kind& k) { return k.enabled; });
  }
  void set() const {
    for (const Kind& kind : kinds_) {
      at::autocast::set_autocast_enabled(kind.device, kind.enabled);
      at::autocast::set_autocast_dtype(kind.device, kind.dtype);
    }
    at::autocast::set_autocast_cache_enabled(cached_);
  }

 private:
  struct Kind {
    at::DeviceType device;
    bool enabled;
    at::ScalarType dtype;
  };
  void add(at::DeviceType device) {
    kinds_.push_back({device, at::autocast::is_autocast_enabled(device),
                      at::autocast::get_autocast_dtype(device)});
  }
  std::vector<Kind> kinds_;
  bool cached_ = at::autocast::is_autocast_cache_enabled();
};

struct Snapshot {
  Tensors generators, buffers;
};

// What f sees beside its arguments and must see again when it runs again.
class Surroundings {
 public:
  Surroundings(at::Device device, const ScanOptions& options)
      : device_(device), autocast_(device), buffers_(options.buffers) {
    if (!options.preserve_rng_state) return;
    generators_.push_back(at::globalContext().defaultGenerator(at::kCPU));
    if (!device.is_cpu()) {
      generators_.push_back(at::globalContext().defaultGenerator(device));
    }
  }

  bool draws = false;  // f draws random numbers

  // All that might change, or what a state keeps of it.
  Snapshot look() const { return {drawn(), values()}; }
  Snapshot snapshot() const { return {draws ? drawn() : Tensors(), values()}; }
  void put_back(const Snapshot& seen) {
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < seen.generators.size(); ++i) {
      const std::lock_guard lock(generators_[i].mutex());
      generators_[i].set_state(seen.generators[i]);
    }
    // variable_data: graphs that saved the buffer are not to be told.
    for (std::size_t i = 0; i < seen.buffers.size(); ++i) {
      buffers_[i].variable_data().copy_(seen.buffers[i]);
    }
  }
  bool drawn_since(const Snapshot& seen) const {
    const Tensors now = drawn();
    return !std::equal(now.begin(), now.end(), seen.generators.begin(),
                       [](const Tensor& a, const Tensor& b) { return a.equal(b); });
  }
  // Around runs of f: casts that autocast keeps are not shared with other runs, since those made
  // without gradients would cut graphs, and others would join them.
  class OwnCasts {
   public:
    explicit OwnCasts(const Surroundings& around) : enabled_(around.autocast_.enabled()) {
      clear();
    }
    OwnCasts(const OwnCasts&) = delete;
    OwnCasts& operator=(const OwnCasts&) = delete;
    ~OwnCasts() { clear(); }

   private:
    void clear() const {
      if (enabled_) at::autocast::clear_cache();
    }
    bool enabled_;
  };
  // Work with autocast as it was; afterwards all is as it is now.
  template <class Work>
  void replay(const Work& work) {
    const Autocast autocast(device_);
    const Snapshot now = snapshot();
    const auto restore = [&] {
      autocast.set();
      put_back(now);
    };
    try {
      autocast_.set();
      work();
    } catch (...) {
      restore();
      throw;
    }
    restore();
  }

 private:
  Tensors drawn() const {
    Tensors found;
    for (at::Generator generator : generators_) {
      const std::lock_guard lock(generator.mutex());
      found.push_back(generator.get_state());
    }
    return found;
  }
  Tensors values() const {
    Tensors found;
    for (const Tensor& buffer : buffers_) found.push_back(buffer.detach().clone());
    return found;
  }
  at::Device device_;
  Autocast autocast_;
  Tensors buffers_;
  std::vector<at::Generator> generators_;
};

}  // namespace ebb::torch::detail
