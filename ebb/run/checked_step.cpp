// SPDX-License-Identifier: Apache-2.0
#include "ebb/run/checked_step.h"

#include <algorithm>
#include <cstring>

#include "ebb/core/error.h"
#include "ebb/run/sizes.h"

namespace ebb {
namespace {

constexpr Bytes kGuard = kPage;
constexpr std::byte kUntouched{0xEB};

std::size_t count(Bytes bytes) { return static_cast<std::size_t>(bytes); }

}  // namespace

std::byte* CheckedStep::Guarded::take(Bytes bytes, const std::byte* from, Bytes copied) {
  if (memory_.size() < bytes + 2 * kGuard) {
    memory_ = Buffer(Ledger(), std::string("checked ") + name_, bytes + 2 * kGuard);
  }
  bytes_ = bytes;
  std::byte* const item = memory_.data() + kGuard;
  std::memset(memory_.data(), static_cast<int>(kUntouched), count(kGuard));
  std::memset(item + bytes, static_cast<int>(kUntouched), count(kGuard));
  if (copied > 0) std::memcpy(item, from, count(copied));
  return item;
}

void CheckedStep::Guarded::check(const char* call, std::int64_t step) const {
  const auto refuse_changed = [&](Bytes from) {
    const std::span<const std::byte> guard = memory_.at(kGuard + from, kGuard);
    const auto changed =
        std::ranges::find_if(guard, [](std::byte byte) { return byte != kUntouched; });
    if (changed == guard.end()) return;
    fail(ErrorCode::invalid_argument, "run: ", call, " of step ", step, " wrote beyond its ", name_,
         ", which has ", bytes_, " bytes: byte ", from + (changed - guard.begin()),
         " was changed; say how much it needs in bytes(), or write less");
  };
  if (memory_.size() == 0) return;
  refuse_changed(bytes_);
  refuse_changed(-kGuard);
}

CheckedStep::CheckedStep(Step& inner) : WrappedStep(inner) {
  for (std::int64_t i = 1; inner.is_uniform() && i < inner.steps(); ++i) check_alike(inner, i);
}

Bytes CheckedStep::largest_state(std::int64_t step) const {
  return std::max(inner().bytes(step).state, inner().after(step));
}

std::byte* CheckedStep::take_scratch(Bytes bytes) {
  return bytes == 0 ? nullptr : scratch_.take(bytes, nullptr, 0);
}

std::int64_t CheckedStep::advance(const StepSpan& span, std::byte* state, std::byte*) {
  for (std::int64_t i = span.from; i < span.to; ++i) {
    const StepBytes bytes = inner().bytes(i);
    std::byte* const own = state_.take(largest_state(i), state, bytes.state);
    const std::int64_t reached =
        inner().advance({i, i + 1, span.first}, own, take_scratch(bytes.scratch));
    state_.check("advance", i);
    scratch_.check("advance", i);
    std::memcpy(state, own, count(inner().after(i)));
    const bool may_end = inner().steps() == kUnknown && span.first && i + 1 < span.to;
    if (reached != i + 1 || (may_end && inner().ended(i + 1, state))) return reached;
  }
  return span.to;
}

void CheckedStep::record(const StepSpan& span, std::byte* state, const Tapes& tapes, std::byte*) {
  for (std::int64_t i = span.from; i < span.to; ++i) {
    const StepBytes bytes = inner().bytes(i);
    std::byte* const own = state_.take(largest_state(i), state, bytes.state);
    std::byte* const tape = tape_.take(bytes.tape, nullptr, 0);
    inner().record({i, i + 1, span.first}, own, {tape, bytes.tape}, take_scratch(bytes.scratch));
    state_.check("record", i);
    tape_.check("record", i);
    scratch_.check("record", i);
    std::memcpy(tapes.at(i - span.from), tape, count(bytes.tape));
    std::memcpy(state, own, count(inner().after(i)));
  }
}

void CheckedStep::reverse(std::int64_t from, std::int64_t to, const Tapes& tapes,
                          std::byte* adjoint, std::byte*) {
  for (std::int64_t i = to - 1; i >= from; --i) {
    const StepBytes bytes = inner().bytes(i);
    std::byte* const own = adjoint_.take(bytes.adjoint, adjoint, bytes.adjoint);
    std::byte* const tape = tape_.take(bytes.tape, tapes.at(i - from), bytes.tape);
    inner().reverse(i, i + 1, {tape, bytes.tape}, own, take_scratch(bytes.scratch));
    adjoint_.check("reverse", i);
    tape_.check("reverse", i);
    scratch_.check("reverse", i);
    std::memcpy(adjoint, own, count(bytes.adjoint));
  }
}

}  // namespace ebb
