// SPDX-License-Identifier: Apache-2.0
// What functions that keep compressed copies share: how the room codec is called on tensors.
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "ebb/core/error.h"
#include "ebb/core/workers.h"

namespace ebb::torch {

using at::Tensor;

namespace detail {

using Sizes = std::vector<std::int64_t>;

// As many threads as torch uses. Each thread of the caller has its own; the codec's results do not
// depend on how many they are.
inline Workers& workers() {
  thread_local std::unique_ptr<Workers> found;
  const int threads = std::min(at::get_num_threads(), Workers::kMost);
  if (!found || found->size() != threads) found = std::make_unique<Workers>(threads);
  return *found;
}

// Whether the codec computes on it.
inline bool is_codecs(const Tensor& x) {
  return x.is_cpu() && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble);
}

// work(Number{}) for the type of a tensor that is_codecs().
template <class Work>
void with_number(const Tensor& x, const Work& work) {
  if (x.scalar_type() == at::kFloat) return work(float{});
  work(double{});
}

// Whether there will be a backward pass through these.
inline bool at_work(const std::vector<Tensor>& tensors) {
  return at::GradMode::is_enabled() &&
         std::any_of(tensors.begin(), tensors.end(), [](const Tensor& tensor) {
           return tensor.defined() && tensor.requires_grad();
         });
}

// For a node's arguments, which must be defined.
inline Tensor given(const Tensor& tensor, const Tensor& x) {
  return tensor.defined() ? tensor : at::empty({0}, x.options());
}

inline void refuse_second_derivatives(const char* function) {
  if (!at::GradMode::is_enabled()) return;
  fail(ErrorCode::invalid_argument, function,
       ": create_graph asks for second derivatives, which only torch's own function has");
}

// One for each axis, where one number may stand for all.
inline Sizes each(const char* what, at::IntArrayRef given, std::int64_t axes) {
  if (std::int64_t(given.size()) == axes) return given.vec();
  if (given.size() != 1) {
    fail(ErrorCode::invalid_argument, what, " has ", given.size(),
         " numbers; give one, or one for ", "each of the ", axes, " axes");
  }
  return Sizes(static_cast<std::size_t>(axes), given[0]);
}

// How a tensor lies in memory, so that what is kept element by element finds its place again.
class Order {
 public:
  explicit Order(const Tensor& x) : format_(x.suggest_memory_format()) {}
  explicit Order(std::int64_t name) : format_(static_cast<at::MemoryFormat>(name)) {}
  std::int64_t name() const { return static_cast<std::int64_t>(format_); }
  bool channels_last() const { return format_ != at::MemoryFormat::Contiguous; }

  Tensor dense(const Tensor& x) const { return x.contiguous(format_); }
  Tensor empty(at::IntArrayRef sizes, const at::TensorOptions& options) const {
    return at::empty(sizes, options, format_);
  }
  // A view of one that is dense.
  static Tensor flat(const Tensor& dense) { return dense.as_strided({dense.numel()}, {1}); }

 private:
  at::MemoryFormat format_;
};

}  // namespace detail
}  // namespace ebb::torch
