// SPDX-License-Identifier: Apache-2.0
// A small ResNet written with LibTorch, trained in four ways from the same weights on the same
// images: torch's own, with exact savings, with pooled convolutions too, and with 8-bit norms too.
// Checks that exact ones give torch's losses bit for bit, that all learn, and that each keeps less.
#include <ebb/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace {

constexpr std::int64_t kBatch = 16, kClasses = 4, kIterations = 8;

enum class Way { stock, exact, pooled, int8 };

struct BlockImpl : torch::nn::Module {
  BlockImpl(std::int64_t in, std::int64_t out, std::int64_t stride)
      : conv1(torch::nn::Conv2dOptions(in, out, 3).stride(stride).padding(1).bias(false)),
        conv2(torch::nn::Conv2dOptions(out, out, 3).padding(1).bias(false)),
        conv3(torch::nn::Conv2dOptions(in, out, 1).stride(stride).bias(false)),
        norm1(out),
        norm2(out) {
    register_module("conv1", conv1);
    register_module("norm1", norm1);
    register_module("conv2", conv2);
    register_module("norm2", norm2);
    if (in != out) register_module("conv3", conv3);
  }

  at::Tensor forward(const at::Tensor& x, Way way) {
    const bool narrows = conv1->options.in_channels() != conv1->options.out_channels();
    if (way == Way::stock) {
      const at::Tensor y = norm2(conv2(torch::relu(norm1(conv1(x)))));
      return torch::relu(y + (narrows ? conv3(x) : x));
    }
    if (way == Way::exact) {
      const at::Tensor y = norm2(ebb::torch::norm_relu_conv(conv1(x), norm1, conv2));
      return torch::relu(y + (narrows ? conv3(x) : x));
    }
    at::Tensor y = ebb::torch::pooled_conv(x, conv1, 2);
    if (way == Way::pooled) {
      y = norm2(ebb::torch::norm_relu_conv(y, norm1, conv2));
    } else {
      y = ebb::torch::relu_bits(ebb::torch::batch_norm_int8(y, norm1));
      y = ebb::torch::batch_norm_int8(ebb::torch::pooled_conv(y, conv2, 2), norm2);
    }
    return ebb::torch::relu_bits(y + (narrows ? ebb::torch::pooled_conv(x, conv3, 2) : x));
  }

  torch::nn::Conv2d conv1, conv2, conv3;
  torch::nn::BatchNorm2d norm1, norm2;
};
TORCH_MODULE(Block);

struct NetImpl : torch::nn::Module {
  NetImpl()
      : stem(torch::nn::Conv2dOptions(3, 16, 3).padding(1).bias(false)),
        norm(16),
        head(64, kClasses) {
    register_module("stem", stem);
    register_module("norm", norm);
    register_module("head", head);
    std::int64_t in = 16;
    for (const std::int64_t out : {16, 32, 64}) {  // a stage each
      for (int i = 0; i < 2; ++i) {
        blocks.push_back(register_module("block" + std::to_string(blocks.size()),
                                         Block(in, out, in == out ? 1 : 2)));
        in = out;
      }
    }
  }

  at::Tensor forward(const at::Tensor& images, Way way) {
    at::Tensor x = stem(images);
    x = way == Way::int8 ? ebb::torch::batch_norm_int8(x, norm) : norm(x);
    x = way == Way::stock || way == Way::exact ? torch::relu(x) : ebb::torch::relu_bits(x);
    for (Block& block : blocks) x = block(x, way);
    return head(x.mean({2, 3}));
  }

  torch::nn::Conv2d stem;
  torch::nn::BatchNorm2d norm;
  torch::nn::Linear head;
  std::vector<Block> blocks;
};
TORCH_MODULE(Net);

// What torch's allocator gives and takes back.
struct Allocated final : c10::MemoryReportingInfoBase {
  void reportMemoryUsage(void*, std::int64_t, std::size_t total, std::size_t,
                         c10::Device) override {
    now = static_cast<std::int64_t>(total);
    peak = std::max(peak, now);
  }
  bool memoryProfilingEnabled() const override { return true; }
  std::int64_t now = 0, peak = 0;
};

// Waves, of as many lengths as there are classes, in noise.
std::pair<at::Tensor, at::Tensor> batch() {
  const at::Tensor classes = torch::randint(kClasses, {kBatch});
  const at::Tensor place = torch::arange(32) * (classes + 1).view({-1, 1, 1, 1}) * 0.2;
  const at::Tensor phase = torch::rand({kBatch, 3, 1, 1}) * 6.28;
  const at::Tensor noise = 0.3 * torch::randn({kBatch, 3, 32, 32});
  return {torch::sin(place + phase) + noise, classes};
}

struct Trained {
  std::vector<double> losses;
  std::int64_t kept = 0, peak = 0;  // bytes: for the backward pass, and at most
  double seconds = 0;
};

Trained train(Way way, Allocated& allocated) {
  torch::manual_seed(1);
  Net net;
  torch::optim::Adam optimiser(net->parameters(), torch::optim::AdamOptions(0.003));
  Trained found;
  for (int i = 0; i < kIterations; ++i) {
    const auto [images, classes] = batch();
    optimiser.zero_grad();
    const auto begin = std::chrono::steady_clock::now();
    const std::int64_t before = allocated.peak = allocated.now;
    const at::Tensor loss = torch::nn::functional::cross_entropy(net(images, way), classes);
    found.kept = allocated.now - before;
    loss.backward();
    found.peak = allocated.peak - before;
    optimiser.step();
    found.losses.push_back(loss.item<double>());
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    if (i > 0) found.seconds += time.count() / (kIterations - 1);
  }
  return found;
}

}  // namespace

int main() {
  const auto allocated = std::make_shared<Allocated>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, allocated);
  std::printf("         loss   kept MiB   peak MiB   seconds a step\n");
  std::vector<Trained> all;
  for (const char* name : {"stock", "exact", "pooled", "int8"}) {
    all.push_back(train(static_cast<Way>(all.size()), *allocated));
    const Trained& now = all.back();
    const double loss = std::accumulate(now.losses.end() - 3, now.losses.end(), 0.0) / 3;
    std::printf("%-7s  %.4f  %9.2f  %9.2f  %15.3f\n", name, loss,
                static_cast<double>(now.kept) / (1 << 20),
                static_cast<double>(now.peak) / (1 << 20), now.seconds);
    if (loss > 0.8 * now.losses.front()) return 1;
    if (all.size() > 1 && now.kept >= all[all.size() - 2].kept) return 1;
  }
  return all[1].losses == all[0].losses ? 0 : 1;
}
