// SPDX-License-Identifier: Apache-2.0
// The codecs of one run: how its tapes, its kept states and its transfers are encoded. Private to
// the room; which words there are is the codec room's business, when to encode the executor's.
#pragma once

#include <memory>
#include <string>

#include "ebb/codec/codec.h"
#include "ebb/codec/fields.h"
#include "ebb/plan/chain.h"
#include "ebb/run/coded_step.h"
#include "ebb/run/step.h"
#include "ebb/store/store.h"

namespace ebb {

// Empty: as they are.
struct CodecWords {
  std::string tape, state, transfer;
};

class RunCodecs {
 public:
  // The step must outlive it. Throws Error(invalid_argument) for words that are unknown or do not
  // fit the step.
  RunCodecs(Step& step, const CodecWords& words);

  // The given one, or one that keeps its tapes encoded.
  Step& step() { return coded_ ? *coded_ : step_; }
  // How states are kept; null: as they are.
  const FieldCodec* state() const { return state_.get(); }
  // Every item is encoded on its way to a tier.
  bool for_transfers() const { return transfer_ != nullptr; }
  bool exact() const { return (!coded_ || coded_->exact()) && (!state_ || state_->exact()); }

  // The chain with states as they are kept.
  Chain kept(const Chain& chain, bool has_tiers) const;
  // What tiers do to items; it must outlive them.
  void set_transforms(TierNeeds& needs) const;

 private:
  Step& step_;
  std::unique_ptr<CodedStep> coded_;
  std::unique_ptr<FieldCodec> state_;
  std::shared_ptr<const Codec> transfer_;
};

}  // namespace ebb
