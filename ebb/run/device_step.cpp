// SPDX-License-Identifier: Apache-2.0
#include "ebb/run/device_step.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "ebb/core/error.h"
#include "ebb/device/cuda_arrays.h"

namespace ebb {

DeviceItem& DeviceItem::operator=(DeviceItem&& other) noexcept {
  DeviceItem old(std::move(other));
  std::swap(block_, old.block_);
  std::swap(stream_, old.stream_);
  std::swap(arrives_, old.arrives_);
  std::swap(leaves_, old.leaves_);
  return *this;
}

DeviceItem::~DeviceItem() {
  if (!*this) return;
  try {
    if (arrives_) arrives_->hold(stream_);
    if (leaves_) leaves_->hold(stream_);
  } catch (const std::exception&) {
    // Only a device that failed refuses to wait, and it does not copy any more.
    return;
  }
}

std::byte* DeviceItem::data() {
  if (arrives_) arrives_->hold(stream_);
  arrives_.reset();
  return block_.data();
}

void DeviceItem::send(std::byte* to, Bytes bytes, void* other) {
  const std::byte* const from = data();
  CudaEvent ready, done;
  ready.record(stream_);
  ready.hold(other);
  cuda_copy(to, from, bytes, other);
  done.record(other);
  leaves_ = std::move(done);
}

void DeviceItem::fetch(const std::byte* from, Bytes bytes, void* other) {
  CudaEvent ready, done;
  ready.record(stream_);
  ready.hold(other);
  cuda_copy(block_.data(), from, bytes, other);
  done.record(other);
  arrives_ = std::move(done);
}

DeviceStep::DeviceStep(const DeviceStack& stack, std::int64_t time_steps, CudaPool& pool,
                       Bytes most, CudaProducts& products, const std::byte* prepared,
                       PinnedMemory host, Bytes host_bytes)
    : stack_(stack),
      time_steps_(time_steps),
      batch_(stack.batch()),
      pool_(pool),
      most_(most),
      products_(products),
      prepared_(prepared),
      host_(std::move(host)) {
  const Bytes each = CudaPool::rounded(stack.state_bytes());
  for (std::int64_t place = host_bytes / each - 1; place >= 0; --place) unused_.push_back(place);
}

void DeviceStep::clear() noexcept {
  live_ = {};
  of_after_ = {};
  of_before_ = {};
  kept_.clear();
  tapes_.clear();
  leaving_.clear();
  for (const auto& [step, place] : places_) unused_.push_back(place);
  places_.clear();
}

void DeviceStep::begin(const Forward& given) {
  forward_ = given;
  live_ = take(stack_.state_bytes());
  live_at_ = 0;
  stack_.load(given.initial, live_.data(), given.stream);
}

// Others that share the ledger find in it what the plan keeps, and no more.
void DeviceStep::end_forward() { leaving_.clear(); }

void DeviceStep::begin_backward(const Backward& given) {
  backward_ = given;
  of_after_ = take(stack_.adjoint_bytes());
  of_before_ = take(stack_.adjoint_bytes());
  stack_.load_adjoint(given.of_final, of_after_.data(), forward_.stream);
  cuda_zero(given.gradient, stack_.parameter_size() * static_cast<Bytes>(sizeof(float)),
            forward_.stream);
  if (stack_.sums_bytes() > 0) cuda_zero(given.sums, stack_.sums_bytes(), forward_.stream);
}

void DeviceStep::end_backward() {
  if (backward_.of_initial != nullptr)
    stack_.store_adjoint(of_after_.data(), backward_.of_initial, forward_.stream);
  stack_.finish(prepared_, backward_.sums, backward_.gradient, forward_.stream);
  clear();
}

std::int64_t DeviceStep::steps_of(std::int64_t step) const {
  return std::min(stack_.chunk(), time_steps_ - step * stack_.chunk());
}

DeviceStep::Inputs DeviceStep::inputs_of(std::int64_t step) {
  const std::int64_t first = step * stack_.chunk();
  const Bytes row = input_row();
  if (forward_.x != nullptr) return {{}, forward_.x + first * row};
  DeviceItem made = take(stack_.chunk() * row);
  forward_.inputs(first, steps_of(step), made.data(), forward_.stream);
  const std::byte* const x = made.data();
  return {std::move(made), x};
}

std::byte* DeviceStep::y_of(std::int64_t step, bool first) const {
  if (!first || forward_.y == nullptr) return nullptr;
  return forward_.y + step * stack_.chunk() * output_row();
}

DeviceItem DeviceStep::take(Bytes bytes) {
  while (!leaving_.empty() && CudaPool::rounded(bytes) > most_ - pool_.live()) leaving_.pop_front();
  try {
    return {pool_.take(bytes, forward_.stream), forward_.stream};
  } catch (const Error&) {
    if (leaving_.empty()) throw;
  }
  leaving_.clear();  // others have taken what the plan counts on
  return {pool_.take(bytes, forward_.stream), forward_.stream};
}

void DeviceStep::retire(DeviceItem item) {
  if (item.was_sent()) leaving_.push_back(std::move(item));
}

// The live state is now the one after the step.
void DeviceStep::passed(std::int64_t step, bool first) {
  live_at_ = step + 1;
  if (first && live_at_ * stack_.chunk() >= time_steps_ && forward_.final != nullptr)
    stack_.store(live_.data(), forward_.final, forward_.stream);
}

std::int64_t DeviceStep::advance(const StepSpan& span) {
  DeviceItem scratch = take(stack_.scratch_bytes());
  for (std::int64_t i = span.from; i < span.to; ++i) {
    DeviceItem after = take(stack_.state_bytes());
    const Inputs inputs = inputs_of(i);
    stack_.advance(work(), prepared_, steps_of(i), inputs.x, live_.data(), after.data(),
                   y_of(i, span.first), scratch.data());
    retire(std::exchange(live_, std::move(after)));
    passed(i, span.first);
  }
  return span.to;
}

void DeviceStep::record(const StepSpan& span) {
  DeviceItem scratch;
  if (stack_.record_bytes() > 0) scratch = take(stack_.record_bytes());
  for (std::int64_t i = span.from; i < span.to; ++i) {
    DeviceItem tape = take(stack_.tape_bytes());
    {
      const Inputs inputs = inputs_of(i);
      stack_.record(work(), prepared_, steps_of(i), inputs.x, live_.data(), tape.data(),
                    y_of(i, span.first), scratch ? scratch.data() : nullptr);
    }
    DeviceItem after = take(stack_.state_bytes());
    stack_.state_of_tape(tape.data(), steps_of(i), after.data(), forward_.stream);
    retire(std::exchange(live_, std::move(after)));
    tapes_[i] = std::move(tape);
    passed(i, span.first);
  }
}

void DeviceStep::reverse(std::int64_t from, std::int64_t to) {
  if (live_at_ >= from) retire(std::exchange(live_, {}));
  DeviceItem scratch = take(stack_.scratch_bytes());
  const std::int64_t chunk = stack_.chunk();
  for (std::int64_t i = to - 1; i >= from; --i) {
    const auto tape = tapes_.find(i);
    const Inputs inputs = inputs_of(i);
    DeviceStack::Reversed given;
    given.steps = steps_of(i);
    given.x = inputs.x;
    given.tape = tape->second.data();
    if (backward_.of_y != nullptr) given.of_y = backward_.of_y + i * chunk * output_row();
    given.of_after = of_after_.data();
    given.of_before = of_before_.data();
    if (backward_.of_x != nullptr) given.of_x = backward_.of_x + i * chunk * input_row();
    given.gradient = backward_.gradient;
    given.sums = backward_.sums;
    stack_.reverse(work(), prepared_, given, scratch.data());
    std::swap(of_after_, of_before_);
    tapes_.erase(tape);
  }
}

// A copy of its own.
DeviceItem DeviceStep::state_in_fast(std::int64_t step) {
  DeviceItem found = take(stack_.state_bytes());
  const auto kept = kept_.find(step);
  if (kept != kept_.end()) {
    cuda_copy(found.data(), kept->second.data(), stack_.state_bytes(), forward_.stream);
  } else if (step == 0) {
    stack_.load(forward_.initial, found.data(), forward_.stream);
  } else {
    stack_.state_of_tape(tapes_.at(step - 1).data(), stack_.chunk(), found.data(), forward_.stream);
  }
  return found;
}

void DeviceStep::copy(const Copy& copy) {
  const Bytes bytes = stack_.state_bytes(), each = CudaPool::rounded(bytes);
  const std::int64_t step = copy.step;
  if (copy.to.is_slow()) {
    const std::int64_t place = unused_.back();
    std::byte* const to = host_.data() + place * each;
    const auto kept = kept_.find(step);
    if (copy.from == Place::work) {
      live_.send(to, bytes, copies_.get());
    } else if (kept != kept_.end()) {
      kept->second.send(to, bytes, copies_.get());
    } else {
      DeviceItem found = state_in_fast(step);
      found.send(to, bytes, copies_.get());
      retire(std::move(found));
    }
    unused_.pop_back();
    places_[step] = place;
    return;
  }
  // Its memory may be all that there is.
  if (copy.to == Place::work) retire(std::exchange(live_, {}));
  DeviceItem found;
  if (copy.from.is_slow()) {
    found = take(bytes);
    found.fetch(host_.data() + places_.at(step) * each, bytes, copies_.get());
  } else if (copy.from == Place::work) {
    found = take(bytes);
    cuda_copy(found.data(), live_.data(), bytes, forward_.stream);
  } else {
    found = state_in_fast(step);
  }
  if (copy.to == Place::work) {
    live_ = std::move(found);
    live_at_ = step;
  } else {
    kept_[step] = std::move(found);
  }
}

void DeviceStep::drop(const Drop& drop) {
  if (drop.item == Item::tape) {
    tapes_.erase(drop.step);
  } else if (drop.place.is_slow()) {
    const auto found = places_.find(drop.step);
    unused_.push_back(found->second);
    places_.erase(found);
  } else {
    const auto found = kept_.find(drop.step);
    retire(std::move(found->second));
    kept_.erase(found);
  }
}

}  // namespace ebb
