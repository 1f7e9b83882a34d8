// SPDX-License-Identifier: Apache-2.0
// An LSTM trained on a GPU in a fifth of the memory that keeping everything takes. The task: the sum of two numbers, marked among many
// others in a long sequence. Loss and optimiser are here, on the host; a program that uses CUDA would have them on the device.
#include <ebb/ebb.h>

#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

namespace {

constexpr std::int64_t kSteps = 200, kBatch = 64, kInputs = 2, kHidden = 64;
constexpr int kIterations = 400;

struct Batch {
  std::vector<float> x = std::vector<float>(kSteps * kBatch * kInputs);
  std::vector<float> sum = std::vector<float>(kBatch);
};

// Inputs: a number, and 1 beside two of them, one in each half.
Batch made_batch(std::mt19937& random) {
  std::uniform_real_distribution<float> number(0, 1);
  std::uniform_int_distribution<std::int64_t> place(0, kSteps / 2 - 1);
  Batch batch;
  for (std::int64_t b = 0; b < kBatch; ++b) {
    const auto at = [&](std::int64_t t) { return batch.x.begin() + (t * kBatch + b) * kInputs; };
    for (std::int64_t t = 0; t < kSteps; ++t) *at(t) = number(random);
    for (const std::int64_t t : {place(random), kSteps / 2 + place(random)}) {
      at(t)[1] = 1;
      batch.sum[static_cast<std::size_t>(b)] += *at(t);
    }
  }
  return batch;
}

class Adam {
 public:
  explicit Adam(std::size_t size) : mean_(size), square_(size) {}
  void step(std::vector<float>& values, const std::vector<float>& gradient) {
    constexpr float rate = 3e-3F, keep = 0.9F, keep_square = 0.999F;
    ++steps_;
    const float scale = std::sqrt(1 - std::pow(keep_square, steps_)) / (1 - std::pow(keep, steps_));
    for (std::size_t i = 0; i < values.size(); ++i) {
      mean_[i] += (1 - keep) * (gradient[i] - mean_[i]);
      square_[i] += (1 - keep_square) * (gradient[i] * gradient[i] - square_[i]);
      values[i] -= rate * scale * mean_[i] / (std::sqrt(square_[i]) + 1e-8F);
    }
  }

 private:
  float steps_ = 0;
  std::vector<float> mean_, square_;
};

// The readout: one number for each sample from its last output. Returns the mean square error; gradients of the outputs and of the
// readout are written.
double read_out(const std::vector<float>& last, const std::vector<float>& weights,
                const Batch& batch, std::vector<float>& of_last, std::vector<float>& of_weights) {
  double loss = 0;
  of_weights.assign(weights.size(), 0);
  for (std::size_t b = 0; b < kBatch; ++b) {
    const std::size_t row = b * kHidden;
    float found = weights[kHidden];
    for (std::size_t u = 0; u < kHidden; ++u) found += weights[u] * last[row + u];
    const float error = found - batch.sum[b], each = 2 * error / kBatch;
    loss += error * error / kBatch;
    for (std::size_t u = 0; u < kHidden; ++u) {
      of_last[row + u] = each * weights[u];
      of_weights[u] += each * last[row + u];
    }
    of_weights[kHidden] += each;
  }
  return loss;
}

int train() {
  ebb::DeviceNetworkOptions options{
      .time_steps = kSteps,
      .batch = kBatch,
      .layers = {{.cell = "lstm", .input = kInputs, .hidden = kHidden, .forget_bias = 1}},
      .number = "tf32"};
  options.budget = ebb::device_plan(options).plan.prediction.peak[0] / 5;
  ebb::DeviceNetwork net(options);

  // Only the last output is read: h of the final state. The gradient goes in where it came out.
  ebb::DeviceMemory x(kSteps * kBatch * kInputs * sizeof(float));
  ebb::DeviceMemory final(net.state_size() * 4), of_final(final.size());
  std::vector<float> values(
      static_cast<std::size_t>(net.layout().back().offset + net.layout().back().size));
  std::vector<float> gradient(values.size()), readout(kHidden + 1), of_readout;
  std::vector<float> state(static_cast<std::size_t>(net.state_size())), of_state(state.size());
  std::vector<float> last(kBatch * kHidden), of_last(last.size());
  net.copy_values(values);
  Adam of_net(values.size()), of_readout_weights(readout.size());
  std::mt19937 random(1);
  double first = 0, smooth = 0;
  for (int i = 0; i < kIterations; ++i) {
    const Batch batch = made_batch(random);
    x.upload(batch.x);
    net.forward(x.data(), nullptr, nullptr, reinterpret_cast<float*>(final.data()));
    final.download(state);
    for (std::ptrdiff_t b = 0; b < kBatch; ++b)  // [B,F,H]: of each sample h, then c
      std::copy_n(state.begin() + b * 2 * kHidden, kHidden, last.begin() + b * kHidden);
    const double loss = read_out(last, readout, batch, of_last, of_readout);
    for (std::ptrdiff_t b = 0; b < kBatch; ++b)
      std::copy_n(of_last.begin() + b * kHidden, kHidden, of_state.begin() + b * 2 * kHidden);
    of_final.upload(of_state);
    net.backward(nullptr, nullptr, reinterpret_cast<const float*>(of_final.data()));
    net.copy_gradient(gradient);
    of_net.step(values, gradient);
    of_readout_weights.step(readout, of_readout);
    net.set_values(values);
    if (i == 0) first = smooth = loss;
    smooth += 0.05 * (loss - smooth);
    if (i % 50 == 0 || i + 1 == kIterations) std::printf("%3d  loss %.4f\n", i, smooth);
  }
  const ebb::Report report = net.report();
  std::printf("%s", report.full().c_str());
  std::printf("peak %s of a budget of %s, beside %s that stand\n",
              ebb::format_bytes(report.measured.peak[0]).c_str(),
              ebb::format_bytes(options.budget).c_str(),
              ebb::format_bytes(net.standing_bytes()).c_str());
  if (report.measured.peak[0] > options.budget || !(smooth < first / 2)) {
    std::fprintf(stderr, "device_lstm: the budget was not kept, or nothing was learned\n");
    return 1;
  }
  return 0;
}

}  // namespace

int main() {
  const std::string missing = ebb::cuda_missing();
  if (!missing.empty()) {
    std::printf(
        "%s\nThis example needs a GPU of compute capability 8.0 or more, cuBLAS 12 or 13, and ebb "
        "built with -DEBB_CUDA=ON\n",
        missing.c_str());
    return 0;
  }
  std::printf("%s\n", ebb::cuda_device_name().c_str());
  return train();
}
