// SPDX-License-Identifier: Apache-2.0
#include "ebb/run/codecs.h"

#include <string_view>

#include "ebb/core/error.h"
#include "ebb/run/sizes.h"

namespace ebb {
namespace {

std::shared_ptr<const Codec> transfer_codec(const std::string& words) {
  if (words.empty()) return nullptr;
  const CodecRow& row = codec_row(std::string_view(words).substr(0, words.find(':')));
  if (!row.exact || row.fixed) {
    fail(ErrorCode::invalid_argument, "run: transfer codec '", words,
         "': it takes lossless ones whose size depends on the content: events, zstd, lz4");
  }
  // Words, not bytes: what is 0 in all its bits costs nothing.
  return make_codec(words, row.bytes ? Element::byte : Element::f32);
}

std::unique_ptr<FieldCodec> state_codec(const Step& step, const std::string& words) {
  if (words.empty()) return nullptr;
  if (!step.is_uniform() || step.steps() == 0) {
    fail(ErrorCode::invalid_argument, "run: state codec '", words,
         "': it takes a Step of 1 step or more, all alike");
  }
  const Bytes state = step.bytes(0).state;
  auto codec = std::make_unique<FieldCodec>(words, step.state_fields(), state);
  if (codec->encoded_bytes() >= state) {
    fail(ErrorCode::invalid_argument, "run: state codec '", words,
         "' makes no state smaller: ", state, " bytes become ", codec->encoded_bytes());
  }
  return codec;
}

}  // namespace

RunCodecs::RunCodecs(Step& step, const CodecWords& words) : step_(step) {
  if (!words.state.empty() && !words.transfer.empty()) {
    fail(ErrorCode::invalid_argument, "run: state codec '", words.state, "' and transfer codec '",
         words.transfer, "' exclude each other; name one");
  }
  transfer_ = transfer_codec(words.transfer);
  if (!words.tape.empty()) coded_ = std::make_unique<CodedStep>(step, words.tape);
  state_ = state_codec(step, words.state);
}

Chain RunCodecs::kept(const Chain& chain, bool has_tiers) const {
  if (!state_) return chain;
  StepCost cost = chain.at(0);
  cost.live = cost.state;
  cost.state = rounded(state_->encoded_bytes(), item_grain(cost.tape, has_tiers));
  return Chain::uniform(chain.steps(), cost, chain.call());
}

void RunCodecs::set_transforms(TierNeeds& needs) const {
  if (transfer_) {
    needs.encode = [codec = transfer_](std::span<const std::byte> from, std::span<std::byte> to) {
      return codec->encode(from, to);
    };
    needs.decode = [codec = transfer_](std::span<const std::byte> from, std::span<std::byte> to) {
      codec->decode(from, to);
      return static_cast<Bytes>(to.size());
    };
  } else if (state_) {
    needs.encode = [codec = state_.get()](std::span<const std::byte> from,
                                          std::span<std::byte> to) {
      const Bytes bytes = codec->encoded_bytes();
      codec->encode(from, to.first(static_cast<std::size_t>(bytes)));
      return bytes;
    };
    needs.decode = [codec = state_.get()](std::span<const std::byte> from,
                                          std::span<std::byte> to) {
      codec->decode(from.first(static_cast<std::size_t>(codec->encoded_bytes())), to);
      return static_cast<Bytes>(to.size());
    };
  }
}

}  // namespace ebb
