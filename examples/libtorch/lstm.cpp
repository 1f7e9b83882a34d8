// SPDX-License-Identifier: Apache-2.0
// An LSTM written with LibTorch learns to add two marked numbers of a long sequence, in a tenth of
// the memory of plain autograd. Checks that the loss falls and that the budget is kept.
#include <ebb/torch.h>

#include <cstdio>

namespace {

using namespace ebb::literals;

constexpr std::int64_t kSteps = 200, kBatch = 32, kHidden = 32;
constexpr ebb::Bytes kBudget = 2_MiB;

// Numbers with two marks, and the sum of the two marked ones.
std::pair<at::Tensor, at::Tensor> batch() {
  at::Tensor numbers = torch::rand({kSteps, kBatch, 1});
  at::Tensor marks = torch::zeros({kSteps, kBatch, 1});
  const at::Tensor half = torch::randint(kSteps / 2, {2, kBatch, 1});
  marks.scatter_(0, half.slice(0, 0, 1), 1);
  marks.scatter_(0, half.slice(0, 1, 2) + kSteps / 2, 1);
  return {torch::cat({numbers, marks}, 2), (numbers * marks).sum(0)};
}

}  // namespace

int main() {
  torch::manual_seed(1);
  torch::nn::LSTMCell cell(2, kHidden);
  torch::nn::Linear readout(kHidden, 1);
  std::vector<at::Tensor> weights = cell->parameters();
  for (const at::Tensor& weight : readout->parameters()) weights.push_back(weight);
  torch::optim::Adam optimiser(weights, torch::optim::AdamOptions(0.01));

  ebb::torch::ScanOptions options{.budget = kBudget, .params = cell->parameters()};
  double first = 0, last = 0;
  for (int iteration = 0; iteration < 30; ++iteration) {
    const auto [xs, target] = batch();
    const at::Tensor zero = torch::zeros({kBatch, kHidden});
    const ebb::torch::ScanResult result = ebb::torch::scan(
        [&](ebb::torch::Tensors carry, at::Tensor x) {
          const auto [h, c] = cell(x, std::make_tuple(carry[0], carry[1]));
          return std::pair(ebb::torch::Tensors{h, c}, at::Tensor());
        },
        {zero, zero}, xs, options);
    options.cost = result.cost;  // measured once
    const at::Tensor loss = torch::mse_loss(readout(result.carry[0]), target);
    optimiser.zero_grad();
    loss.backward();
    optimiser.step();
    last = loss.item<double>();
    if (iteration > 0) continue;
    first = last;
    if (!result.report || result.report->booked > kBudget) return 1;
    std::printf("%s", result.report->full().c_str());
  }
  std::printf("loss %.4f, then %.4f\n", first, last);
  return last < first ? 0 : 1;
}
