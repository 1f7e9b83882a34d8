// SPDX-License-Identifier: Apache-2.0
// ebb::torch::scan against loops written by hand, bit for bit.
#include "ebb/torch.h"

#include <gtest/gtest.h>

#include <exception>

#include "tests/torch/models.h"

namespace {

using namespace ebb::literals;
using namespace libtorch_test;

TEST(Scan, HasTheBitsOfAPlainLoop) {
  for (const std::int64_t chunk : {1, 3, 7}) {
    SCOPED_TRACE(chunk);
    expect_like_by_hand(lstm(), {.chunk = chunk});
    expect_like_by_hand(gated(), {.chunk = chunk});
  }
  for (const char* strategy : {"revolve", "sqrt", "msm", "constant"}) {
    SCOPED_TRACE(strategy);
    expect_like_by_hand(gated(), {.strategy = strategy, .chunk = 2});
  }
  expect_like_by_hand(gated(450), {});
}

TEST(Scan, DrawsRandomNumbersAgainAlike) {
  for (const std::int64_t chunk : {1, 4}) expect_like_by_hand(lstm(kSteps, 0.4), {.chunk = chunk});
  // None in the first blocks.
  Model late = gated(100);
  late.init.push_back(torch::zeros({}, torch::kLong));
  late.f = [f = late.f](const Tensors& carry, const Tensor& x) {
    auto [out, y] = f({carry[0]}, x);
    if (carry[1].item<int>() > 60) out[0] = torch::dropout(out[0], 0.3, true);
    return std::pair(Tensors{out[0], carry[1] + 1}, y);
  };
  torch::manual_seed(7);
  const ScanResult plain = by_hand(late);
  const Tensors wanted = {late.init[0], late.xs, late.params[0], late.params[1]};
  const Tensors expected = torch::autograd::grad({plain.ys.sum()}, wanted);
  // What is known of the first block alone is too little: states of generators come in addition.
  const ebb::Bytes budget = least_budget(late, {.chunk = 2}) + 30_KiB;
  torch::manual_seed(7);
  const ScanResult found =
      scan(late.f, late.init, late.xs, {.budget = budget, .chunk = 2, .params = late.params});
  ASSERT_TRUE(found.report);
  expect_same({found.ys}, {plain.ys});
  expect_same(torch::autograd::grad({found.ys.sum()}, wanted), expected);
}

TEST(Scan, Reduces) {
  for (const Reduce reduce : {Reduce::sum, Reduce::mean}) {
    for (const std::int64_t chunk : {1, 3}) {
      SCOPED_TRACE(chunk);
      expect_like_by_hand(gated(), {.chunk = chunk, .reduce = reduce});
      expect_like_by_hand(lstm(), {.chunk = chunk, .reduce = reduce});
    }
  }
}

TEST(Scan, AnOutputMayBeACarryNowAndThen) {
  Model model = gated();
  model.init.push_back(torch::zeros({}, torch::kLong));
  model.f = [f = model.f](const Tensors& carry, const Tensor& x) {
    auto [out, y] = f({carry[0]}, x);
    const bool same = carry[1].item<int>() % 3 == 0;
    return std::pair(Tensors{out[0], carry[1] + 1}, same ? y : 2 * y);
  };
  const Tensors wanted = {model.init[0], model.xs, model.params[0], model.params[1]};
  const Tensors expected = torch::autograd::grad({by_hand(model).ys.square().sum()}, wanted);
  const ScanResult found = in_little(model, {.chunk = 1});
  expect_same(torch::autograd::grad({found.ys.square().sum()}, wanted), expected);
}

TEST(Scan, ACarryMayHoldOneTensorTwice) {
  Model model = gated();
  model.init.push_back(torch::randn({kBatch, kHidden}).requires_grad_());
  model.f = [f = model.f](const Tensors& carry, const Tensor& x) {
    auto [out, y] = f({carry[0] + carry[1]}, x);
    return std::pair(Tensors{y, y}, y);
  };
  const Tensors expected = gradients(model, by_hand(model));
  const Tensors found = gradients(model, in_little(model, {.chunk = 1}));
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_TRUE(torch::allclose(found[i], expected[i], 1e-4, 1e-6)) << i;
  }
}

TEST(Scan, RefusesWhatItWouldLose) {
  Model model = gated();
  const auto has = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has(refused(model, {.budget = 1_MiB, .params = {model.params[0]}}), "shape [8, 8]");
  // Computed outside, from a named one.
  const Tensor doubled = model.params[1] * 2;
  Model derived = model;
  derived.f = [f = model.f, doubled](const Tensors& carry, const Tensor& x) {
    auto [out, y] = f(carry, x);
    return std::pair(Tensors{out[0] + 0.1 * y.matmul(doubled)}, y);
  };
  has(refused(derived, {.budget = 1_MiB, .params = model.params}), "computed outside");
  has(refused(derived, {.budget = 1_MiB, .params = {model.params[0], model.params[1], doubled}}),
      "computed from another");
  // Named, and of a graph of its own, it is differentiated.
  const Tensor base = torch::randn({kHidden, kHidden}).requires_grad_();
  Model outside = model;
  outside.params.push_back(base * 0.1);
  outside.f = [f = model.f, w = outside.params[2]](const Tensors& carry, const Tensor& x) {
    auto [out, y] = f(carry, x);
    return std::pair(Tensors{torch::tanh(out[0] + y.matmul(w))}, y);
  };
  const Tensors expected = torch::autograd::grad({by_hand(outside).ys.sum()}, {base}, {}, true);
  expect_same(torch::autograd::grad({in_little(outside, {.chunk = 2}).ys.sum()}, {base}), expected);
  // A later block that reaches something else.
  Model later = model;
  int calls = 0;
  later.f = [&](const Tensors& carry, const Tensor& x) {
    auto [out, y] = model.f(carry, x);
    return ++calls > 200 ? std::pair(Tensors{out[0].matmul(base)}, y) : std::pair(out, y);
  };
  calls = -1000;
  const ScanResult found = in_little(later, {.chunk = 1});
  calls = 200;
  EXPECT_THROW(found.ys.sum().backward(), ebb::Error);
}

TEST(Scan, SaysTheLeastBudget) {
  const Model model = lstm();
  ScanOptions options{.chunk = 1, .params = model.params};
  const ScanResult some = in_little(model, options);
  options.cost = some.cost;
  options.budget = 1;
  ebb::Bytes least = 0;
  try {
    scan(model.f, model.init, model.xs, options);
  } catch (const ebb::Error& error) {
    least = error.least_budget().value();
  }
  options.budget = least - 1;
  EXPECT_THROW(scan(model.f, model.init, model.xs, options), ebb::Error);
  options.budget = least;
  const ScanResult found = scan(model.f, model.init, model.xs, options);
  ASSERT_TRUE(found.report);
  expect_same(gradients(model, found), gradients(model, by_hand(model)));
  EXPECT_EQ(found.report->booked, least);
  // Long chunks give way where they are the call's own choice.
  const Model long_one = gated(2000);
  const ebb::Bytes short_blocks = least_budget(long_one, {.chunk = 1});
  EXPECT_LT(short_blocks, least_budget(long_one, {.chunk = 10}));
  EXPECT_LT(least_budget(long_one, {}), short_blocks * 3 / 2);
}

struct Trouble {};

TEST(Scan, LetsExceptionsThroughAndStaysUsable) {
  Model model = lstm(kSteps, 0.4);
  const ebb::Bytes budget = least_budget(model, {.chunk = 1}) * 3 / 2;
  int calls = 0, last = 1 << 30;
  Model failing = model;
  failing.f = [&](const Tensors& carry, const Tensor& x) {
    if (++calls > last) throw Trouble();
    return model.f(carry, x);
  };
  const ScanOptions options{.budget = budget, .chunk = 1, .params = model.params};
  torch::manual_seed(3);
  const Tensors expected = gradients(model, by_hand(model));
  for (const int count : {0, 1, 5, 30}) {
    torch::manual_seed(3);
    calls = 0;
    last = count;
    EXPECT_THROW(scan(failing.f, failing.init, failing.xs, options), Trouble);
    // Random numbers are where they were.
    last = 1 << 30;
    const ScanResult found = scan(failing.f, failing.init, failing.xs, options);
    expect_same(gradients(failing, found), expected);
  }
  torch::manual_seed(3);
  last = 1 << 30;
  const ScanResult found = scan(failing.f, failing.init, failing.xs, options);
  last = calls + 10;
  const Tensor loss = loss_of(found);
  EXPECT_THROW(torch::autograd::grad({loss}, failing.all(), {}, true), Trouble);
  last = 1 << 30;
  expect_same(torch::autograd::grad({loss}, failing.all()), expected);
}

TEST(Scan, RunsPlainlyWhereAllFits) {
  const Model model = lstm();
  int calls = 0;
  const auto counted = [&](const Tensors& carry, const Tensor& x) {
    ++calls;
    return model.f(carry, x);
  };
  ScanOptions options{.budget = 1_GiB, .chunk = 2, .params = model.params};
  const ScanResult first = scan(counted, model.init, model.xs, options);
  EXPECT_FALSE(first.report);
  options.cost = first.cost;
  calls = 0;
  const ScanResult found = scan(counted, model.init, model.xs, options);
  EXPECT_FALSE(found.report);
  EXPECT_EQ(calls, kSteps + 2) << "the first block more";
  expect_same(gradients(model, found), gradients(model, by_hand(model)));
  calls = 0;
  EXPECT_FALSE(scan(counted, model.init, model.xs).report);
  EXPECT_EQ(calls, kSteps);
  const torch::NoGradGuard no_grad;
  EXPECT_FALSE(scan(counted, model.init, model.xs, {.budget = 1}).ys.requires_grad());
}

TEST(Scan, MeasuresOnceWhileBytesAreRight) {
  const Model model = lstm(kSteps, 0.2);
  const ScanResult first = in_little(model, {.chunk = 2});
  ScanOptions options{.budget = 10 * first.cost->tape, .chunk = 2, .params = model.params};
  int calls = 0;
  const auto counted = [&](const Tensors& carry, const Tensor& x) {
    ++calls;
    return model.f(carry, x);
  };
  options.cost = first.cost;
  const ScanResult again = scan(counted, model.init, model.xs, options);
  EXPECT_EQ(again.cost, first.cost);
  EXPECT_LE(calls, kSteps + 4) << "each step once, and the first block again where it is recorded";
  options.chunk = 4;
  EXPECT_GT(scan(counted, model.init, model.xs, options).cost->tape, first.cost->tape);
}

TEST(Scan, GoesBackwardAgainWhereTheGraphIsRetained) {
  const Model model = lstm(kSteps, 0.4);
  torch::manual_seed(5);
  const Tensors expected = gradients(model, by_hand(model));
  const ebb::Bytes budget = least_budget(model, {.chunk = 2}) * 2;
  torch::manual_seed(5);
  const ScanResult found =
      scan(model.f, model.init, model.xs, {.budget = budget, .chunk = 2, .params = model.params});
  ASSERT_TRUE(found.report);
  const Tensor loss = loss_of(found);
  expect_same(torch::autograd::grad({loss}, model.all(), {}, true), expected);
  expect_same(torch::autograd::grad({loss}, model.all(), {}, true), expected);
  expect_same(torch::autograd::grad({loss}, model.all(), {}, false), expected);
  EXPECT_THROW(torch::autograd::grad({loss}, model.all()), std::exception);
}

TEST(Scan, RefusesSecondDerivatives) {
  const Model model = lstm();
  const ScanResult found = in_little(model, {.chunk = 2});
  EXPECT_THROW(torch::autograd::grad({loss_of(found)}, model.all(), {}, true, true), ebb::Error);
}

TEST(Scan, CallsHooksOnceWithTheWholeGradient) {
  const Model model = gated();
  const Tensors expected = gradients(model, by_hand(model));
  int calls = 0;
  model.params[0].register_hook([&](const Tensor& gradient) {
    ++calls;
    return 2 * gradient;
  });
  const Tensors found = gradients(model, in_little(model, {.chunk = 2}));
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(torch::equal(found[2], 2 * expected[2]));
  EXPECT_TRUE(torch::equal(found[3], expected[3]));
}

TEST(Scan, ChangesBuffersOnce) {
  Model model = gated();
  const Tensor mean = torch::zeros({kInputs});
  model.f = [f = model.f, mean](const Tensors& carry, const Tensor& x) mutable {
    mean.mul_(0.9).add_(0.1 * x.detach().mean(0));
    return f(carry, x - mean.clone());
  };
  const Tensors expected = gradients(model, by_hand(model));
  const Tensor once = mean.clone();
  ScanOptions options{.chunk = 2, .buffers = {mean}};
  mean.zero_();
  options.budget = least_budget(model, options) * 3 / 2;
  EXPECT_TRUE(torch::equal(mean, torch::zeros({kInputs}))) << "changed by a call that was refused";
  options.params = model.params;
  const ScanResult found = scan(model.f, model.init, model.xs, options);
  ASSERT_TRUE(found.report);
  EXPECT_TRUE(torch::equal(mean, once));
  expect_same(gradients(model, found), expected);
  EXPECT_TRUE(torch::equal(mean, once));
}

TEST(Scan, ReplaysAutocast) {
  Model model = lstm();
  // Every step casts anew, as every block does.
  model.f = [f = model.f](const Tensors& carry, const Tensor& x) {
    at::autocast::clear_cache();
    return f(carry, x);
  };
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const Tensor plain = by_hand(model).ys;
  const ScanResult found = in_little(model, {.chunk = 1});
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(at::kCPU, false);
  expect_same({found.ys}, {plain});
  expect_same(torch::autograd::grad({found.ys.sum()}, model.all()),
              torch::autograd::grad({plain.sum()}, model.all()));
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
}

TEST(Scan, TakesWhatIsShortOrMissing) {
  const Model none = lstm(0);
  const ScanResult empty = scan(none.f, none.init, none.xs, {.budget = 1});
  EXPECT_TRUE(empty.carry[0].is_same(none.init[0]));
  EXPECT_FALSE(empty.ys.defined());
  const Model one = lstm(1);
  expect_same(
      gradients(one, scan(one.f, one.init, one.xs, {.budget = 1_MiB, .params = one.params})),
      gradients(one, by_hand(one)));
  // Without outputs, and with a carry that no gradient reaches.
  Model silent = gated();
  silent.f = [f = silent.f](const Tensors& carry, const Tensor& x) {
    return std::pair(f(carry, x).first, Tensor());
  };
  const ScanResult found = in_little(silent, {.chunk = 3});
  EXPECT_FALSE(found.ys.defined());
  Tensor plain = silent.init[0];
  for (const Tensor& x : silent.xs.unbind(0)) plain = silent.f({plain}, x).first[0];
  expect_same(torch::autograd::grad({found.carry[0].sum()}, silent.all()),
              torch::autograd::grad({plain.sum()}, silent.all()));
  // A loss on a part of the outputs.
  const Model model = gated();
  const auto part = [&](const ScanResult& result) {
    return torch::autograd::grad({result.ys[5].sum()}, model.all());
  };
  expect_same(part(in_little(model, {.chunk = 2})), part(by_hand(model)));
}

TEST(Scan, RefusesMistakes) {
  const Model model = gated();
  const auto refuses = [](const Model& wrong, const ScanOptions& options) {
    EXPECT_NE(refused(wrong, options), "not refused");
  };
  const ScanOptions good{.budget = 1_MiB, .params = model.params};
  refuses(model, {.budget = -1});
  refuses(model, {.budget = 1_MiB, .chunk = -1, .params = model.params});
  refuses(model, {.budget = 1_MiB, .strategy = "none such", .params = model.params});
  refuses(model, {.budget = 1_MiB, .params = {Tensor()}});
  Model wrong = model;
  wrong.xs = torch::zeros({});
  refuses(wrong, good);
  wrong = model;
  wrong.init[0] = Tensor();
  refuses(wrong, good);
  wrong = model;
  wrong.f = [](const Tensors&, const Tensor& x) { return std::pair(Tensors{x}, x); };
  refuses(wrong, good);
  wrong.f = [](const Tensors& carry, const Tensor& x) {
    return std::pair(Tensors{carry[0], carry[0]}, x);
  };
  refuses(wrong, good);
  wrong.f = [f = model.f, n = 0](const Tensors& carry, const Tensor& x) mutable {
    return std::pair(f(carry, x).first, ++n % 2 == 0 ? x : x.sum());
  };
  refuses(wrong, good);
  wrong = model;
  wrong.init.push_back(torch::zeros({}, torch::kLong));
  wrong.f = [f = model.f](const Tensors& carry, const Tensor& x) {
    auto [out, y] = f({carry[0]}, x);
    Tensor count = carry[1];
    return std::pair(Tensors{out[0], count.add_(1)}, y);
  };
  refuses(wrong, good);
}

TEST(Scan, KeepsTheBudgetAndLeavesNothing) {
  torch::manual_seed(1);
  torch::nn::LSTMCell cell(64, 96);
  const Tensor xs = torch::randn({300, 32, 64}), zero = torch::zeros({32, 96});
  const auto f = [&](const Tensors& carry, const Tensor& x) {
    auto [h, c] = cell(x, std::make_tuple(carry[0], carry[1]));
    return std::pair(Tensors{h, c}, h);
  };
  const auto allocated = std::make_shared<Allocated>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, allocated);
  const ebb::Bytes weights = ebb::torch::detail::storage_bytes(cell->parameters());
  for (const bool goes_back : {false, true, true}) {
    const Tensor touched = torch::zeros({1});
    const ebb::Bytes before = allocated->peak = allocated->now;
    {
      const ScanResult result =
          scan(f, {zero, zero}, xs, {.budget = 2_MiB, .chunk = 1, .params = cell->parameters()});
      ASSERT_TRUE(result.report);
      EXPECT_LT(result.report->booked, 300 * result.cost->tape / 10);
      if (goes_back) result.ys.sum().backward();
      // Outputs and the gradients of the weights are the caller's.
      const ebb::Bytes outputs = static_cast<ebb::Bytes>(result.ys.nbytes());
      EXPECT_LE(allocated->peak - before, result.report->booked + outputs + weights);
    }
    for (Tensor& weight : cell->parameters()) weight.mutable_grad() = Tensor();
    const Tensor touched_again = torch::zeros({1});
    EXPECT_LE(allocated->now - before, 64) << "something is left";
  }
}

}  // namespace
