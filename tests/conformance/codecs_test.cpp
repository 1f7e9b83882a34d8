// SPDX-License-Identifier: Apache-2.0
// Every codec of the registry where it can be used: lossless ones give the same bits as storing
// everything, lossy ones say how far they are off.
#include <gtest/gtest.h>

#include "ebb/codec/codec.h"
#include "ebb/core/error.h"
#include "ebb/plan/strategies.h"
#include "tests/conformance/walk.h"
#include "tests/thorough.h"

namespace ebb::test::codecs_test {
namespace {

// Half of what storing everything takes, in encoded tapes.
Bytes scarce(TestStep& step, RunOptions options) {
  options.strategy = "store_all";
  options.measure_codec_error = false;
  const Run ample(step, options);
  const Bytes most = ample.plan().prediction.peak[0];
  const Bytes least = least_budget(ample.chain(), ample.platform(), {}).value();
  return least + (most - least) / 5;
}

std::vector<SlowTier> tiers(bool with) {
  return with ? std::vector<SlowTier>{memory_tier(64_MiB)} : std::vector<SlowTier>{};
}

TEST(Codecs, OfTransfers) {
  const TemporaryFolder folder;
  int seen = 0;
  for (const CodecRow& row : codecs()) {
    if (!row.exact || row.fixed) continue;
    for (const auto make : {spiking_step, gated_step, uneven_step}) {
      const auto step = make(50);
      const Results expected = stored_all(*step);
      RunOptions options = planned(*step, {file_tier(folder.path(), 64_MiB)});
      options.strategy = "async";
      options.transfer_codec = row.name;
      const ebb::Run ample(*step, options);
      options.budget = least_budget(ample.chain(), ample.platform(),
                                    {.strategy = "async", .working = ample.plan().machine.working})
                           .value();
      SCOPED_TRACE(std::string(row.name) + ", " + step->name());
      ebb::Run run(*step, options);
      EXPECT_TRUE(results_of(run, *step) == expected);
      const TierTraffic traffic = run.report().measured.tiers[0];
      EXPECT_GT(traffic.written.states, 0);
      EXPECT_LE(traffic.written.stored, traffic.written.bytes);
      // Half of a spiking state are 0 and 1, too many for a list of events.
      if (step->name() == "spiking" && row.name != "events") {
        EXPECT_LT(traffic.written.stored, traffic.written.bytes);
      }
      ++seen;
    }
  }
  EXPECT_GE(seen, 3);
}

TEST(Codecs, OfTapes) {
  for (const CodecRow& row : codecs()) {
    if (!row.fixed) continue;
    for (const bool with_tier : {false, true}) {
      const bool bits = row.name == "bits";
      const auto step = bits ? spiking_step(80) : gated_step(thorough() ? 40 : 10);
      SCOPED_TRACE(std::string(row.name) + (with_tier ? ", with a tier" : ""));
      const Results expected = stored_all(*step);
      RunOptions options = planned(*step, tiers(with_tier));
      options.tape_codec = bits ? "s=bits" : std::string(row.name);
      options.budget = scarce(*step, options);
      ebb::Run run(*step, options);
      const Results found = results_of(run, *step);
      // The forward is exact with any codec.
      EXPECT_EQ(found.final, expected.final);
      EXPECT_EQ(found.outputs, expected.outputs);
      const Report report = run.report();
      EXPECT_EQ(report.measured.peak, report.predicted.peak);
      EXPECT_EQ(report.measured.forwards(), report.predicted.forwards);
      if (row.exact) {
        EXPECT_TRUE(found == expected);
        EXPECT_FALSE(report.codec_error.has_value());
      } else {
        ASSERT_TRUE(report.codec_error.has_value());
        EXPECT_GT(report.codec_error->steps, 0);
        EXPECT_GT(report.codec_error->relative(), 0);
        EXPECT_LT(report.codec_error->relative(), row.name == "pool" ? 10 : 0.2);
        EXPECT_NE(report.brief().find("gradient error"), std::string::npos);
      }
    }
  }
}

// What a codec frees becomes checkpoints: fewer forwards in the same budget.
TEST(Codecs, OfTapesSaveForwards) {
  const auto step = gated_step(200);
  RunOptions options = planned(*step);
  options.strategy = "msm";
  options.measure_codec_error = false;
  RunOptions ample = options;
  ample.strategy = "store_all";
  options.budget = ebb::Run(*step, ample).plan().prediction.peak[0] / 2;
  const std::int64_t plain = ebb::Run(*step, options).plan().prediction.forwards;
  options.tape_codec = "before=int8,gate=int8";
  EXPECT_LT(ebb::Run(*step, options).plan().prediction.forwards, plain);
}

TEST(Codecs, OfStates) {
  const TemporaryFolder folder;
  struct Case {
    std::string words;
    bool exact;
  };
  for (const Case& c : {Case{"s=bits", true}, Case{"v=bf16,s=bits", false}}) {
    for (const std::string strategy : {"revolve", "async", "h_revolve", "pofo", "msm"}) {
      const auto step = spiking_step(90);
      const Results expected = stored_all(*step);
      RunOptions options = planned(*step, {memory_tier(8_KiB), file_tier(folder.path(), 64_MiB)});
      options.strategy = strategy;
      options.state_codec = c.words;
      SCOPED_TRACE(c.words + ", " + strategy);
      RunOptions ample = options;
      ample.strategy = "store_all";
      ample.measure_codec_error = false;
      const ebb::Run measured(*step, ample);
      options.budget =
          least_budget(measured.chain(), measured.platform(), {.strategy = strategy}).value() +
          1000;
      ebb::Run run(*step, options);
      EXPECT_LT(run.chain().at(0).state, run.chain().at(0).live_bytes());
      const Results found = results_of(run, *step);
      const Report report = run.report();
      EXPECT_EQ(report.measured.peak, report.predicted.peak);
      EXPECT_EQ(report.measured.forwards(), report.predicted.forwards);
      EXPECT_EQ(found.final, expected.final);
      EXPECT_EQ(found.outputs, expected.outputs);
      if (c.exact) {
        EXPECT_TRUE(found == expected);
      }
      EXPECT_EQ(report.codec_error.has_value(), !c.exact);
    }
  }
}

TEST(Codecs, WordsThatCannotBe) {
  const auto step = spiking_step(10);
  const auto refusal = [&](const std::function<void(RunOptions&)>& change) {
    RunOptions options = planned(*step);
    change(options);
    try {
      const ebb::Run run(*step, options);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_NE(refusal([](RunOptions& o) { o.tape_codec = "nonsense"; }).find("there is no codec"),
            std::string::npos);
  EXPECT_NE(refusal([](RunOptions& o) { o.tape_codec = "x=bits"; }).find("'x'"), std::string::npos);
  EXPECT_NE(refusal([](RunOptions& o) { o.transfer_codec = "bf16"; }).find("lossless"),
            std::string::npos);
  EXPECT_NE(refusal([](RunOptions& o) {
              o.state_codec = "s=bits";
              o.transfer_codec = "events";
            }).find("exclude each other"),
            std::string::npos);
  // Bits of what are no bits: found when it is encoded.
  RunOptions options = planned(*step);
  options.tape_codec = "v=bits";
  ebb::Run run(*step, options);
  EXPECT_THROW(results_of(run, *step), Error);
}

}  // namespace
}  // namespace ebb::test::codecs_test
