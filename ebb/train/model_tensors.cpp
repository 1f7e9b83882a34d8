// SPDX-License-Identifier: Apache-2.0
#include "ebb/train/model_tensors.h"

#include <string>

#include "ebb/core/at.h"

namespace ebb {

template <class Number>
std::vector<TensorView> model_tensors(Network<Number>& network, std::int64_t layers) {
  std::vector<TensorView> tensors;
  const std::string top = "_l" + std::to_string(layers);
  for (const NetworkParameter& own : network.layout()) {
    std::string name = own.name;
    if (name.ends_with(top)) {  // as a torch.nn.Linear called readout has them
      name = "readout." + name.substr(0, name.size() - top.size());
      if (name == "readout.weight_ih") name = "readout.weight";
      if (name == "readout.bias_ih") name = "readout.bias";
    }
    const std::span<Number> part = network.values().subspan(at(own.offset), at(own.size));
    tensors.push_back(view_tensor<Number>(name, own.shape, part));
  }
  for (std::int64_t l = 0; l < layers; ++l) {
    const auto add = [&](const char* weights, const Pattern* pattern) {
      if (pattern == nullptr) return;
      const std::string name = weights + std::to_string(l);
      tensors.push_back(view_tensor<std::int64_t>(
          name + ".starts", {static_cast<std::int64_t>(pattern->starts.size())}, pattern->starts));
      tensors.push_back(view_tensor<std::int32_t>(
          name + ".columns", {static_cast<std::int64_t>(pattern->columns.size())},
          pattern->columns));
    };
    add("weight_ih_l", network.input_pattern(l));
    add("weight_hh_l", network.recurrent_pattern(l));
  }
  return tensors;
}

template <class Number>
void restore_model(Network<Number>& network, std::int64_t layers,
                   std::span<const TensorView> saved) {
  for (const TensorView& own : model_tensors(network, layers)) {
    if (own.type != tensor_type<Number>()) continue;
    auto* const numbers = reinterpret_cast<Number*>(const_cast<std::byte*>(own.bytes.data()));
    copy_tensor<Number>(find_tensor(saved, own.name), {numbers, own.bytes.size() / sizeof(Number)});
  }
}

template std::vector<TensorView> model_tensors(Network<float>&, std::int64_t);
template std::vector<TensorView> model_tensors(Network<double>&, std::int64_t);
template void restore_model(Network<float>&, std::int64_t, std::span<const TensorView>);
template void restore_model(Network<double>&, std::int64_t, std::span<const TensorView>);

}  // namespace ebb
