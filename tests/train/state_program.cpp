// SPDX-License-Identifier: Apache-2.0
// For tests/python/test_train_state.py, which compares with PyTorch:
//   state_program KIND LR MOMENTUM DECAY CLIP SCHEDULE IN.safetensors DIRECTORY
// takes "parameters" and as many steps as "gradients" has rows, and saves a checkpoint.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "ebb/core/error.h"
#include "ebb/train/checkpoint.h"
#include "ebb/train/optimiser.h"
#include "ebb/train/schedule.h"

namespace {

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

template <class Number>
void train(const ebb::OptimiserOptions& options, const ebb::Schedule& schedule,
           const ebb::Safetensors& given, const std::filesystem::path& directory) {
  const std::vector<std::int64_t> shape = ebb::find_tensor(given.tensors, "gradients").shape;
  const std::int64_t steps = shape.at(0);
  const auto size = static_cast<std::size_t>(shape.at(1));
  std::vector<Number> parameters(size), gradients(static_cast<std::size_t>(steps) * size);
  ebb::copy_tensor(ebb::find_tensor(given.tensors, "parameters"), std::span(parameters));
  ebb::copy_tensor(ebb::find_tensor(given.tensors, "gradients"), std::span(gradients));
  ebb::Optimiser<Number> optimiser(options, size);
  std::vector<double> norms;
  for (std::int64_t t = 0; t < steps; ++t) {
    const std::span<const Number> gradient =
        std::span(gradients).subspan(static_cast<std::size_t>(t) * size, size);
    norms.push_back(optimiser.step(parameters, gradient, options.lr * schedule.at(t, steps)));
  }

  ebb::Checkpoint checkpoint;
  checkpoint.iteration = steps;
  checkpoint.seed = 1;
  checkpoint.options = R"({"schedule": ")" + ebb::to_text(schedule) + R"("})";
  checkpoint.model = {
      ebb::view_tensor<Number>("parameters", {static_cast<std::int64_t>(size)}, parameters),
      ebb::view_tensor<double>("norms \"before\" clipping", {steps, 1}, norms)};
  checkpoint.optimiser = optimiser.state();
  ebb::save_checkpoint(directory, checkpoint);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  try {
    ebb::OptimiserOptions options = ebb::optimiser_defaults(ebb::parse_optimiser(words.at(0)));
    options.lr = std::stod(words.at(1));
    options.momentum = std::stod(words.at(2));
    options.weight_decay = std::stod(words.at(3));
    options.clip = std::stod(words.at(4));
    const ebb::Schedule schedule = ebb::parse_schedule(words.at(5));
    const std::string file = content(words.at(6));
    const ebb::Safetensors given =
        ebb::read_safetensors(std::as_bytes(std::span(file)), words.at(6));
    const bool f64 = ebb::find_tensor(given.tensors, "parameters").type == ebb::TensorType::f64;
    (f64 ? train<double> : train<float>)(options, schedule, given, words.at(7));
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  return 0;
}
