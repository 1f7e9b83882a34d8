// SPDX-License-Identifier: Apache-2.0
// Max-pooling that keeps where in its window each output was found, in 4 or 8 bits, and neither its
// input nor 64-bit places.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <tuple>
#include <utility>

#include "ebb/compress/small_indices.h"
#include "ebb/torch/codec_call.h"

namespace ebb::torch {
namespace detail {

constexpr std::int64_t kLargestWindow = 256;

struct Windows {
  Sizes kernel, stride, padding, dilation;
  bool ceil_mode = false;

  std::int64_t elements() const { return c10::multiply_integers(kernel); }
  int bits() const { return elements() <= 16 ? 4 : 8; }

  std::pair<Tensor, Tensor> pool(const Tensor& x) const {
    auto found = kernel.size() == 3
                     ? at::max_pool3d_with_indices(x, kernel, stride, padding, dilation, ceil_mode)
                     : at::max_pool2d_with_indices(x, kernel, stride, padding, dilation, ceil_mode);
    return {std::get<0>(found), std::get<1>(found)};
  }
  // Of x no more than its size and order matters.
  Tensor gradient(const Tensor& gy, const Tensor& x, const Tensor& places) const {
    return kernel.size() == 3 ? at::max_pool3d_with_indices_backward(gy, x, kernel, stride, padding,
                                                                     dilation, ceil_mode, places)
                              : at::max_pool2d_with_indices_backward(gy, x, kernel, stride, padding,
                                                                     dilation, ceil_mode, places);
  }

  // Places in the input, of spatial size `in`, become places in the window.
  Tensor inside(Tensor places, at::IntArrayRef in) const {
    Tensor found = at::zeros_like(places);
    std::int64_t scale = 1;
    for (std::size_t i = kernel.size(); i-- > 0;) {
      const Tensor place = places.remainder(in[i]) - start(i, places);
      found += place.floor_divide(dilation[i]) * scale;
      places = places.floor_divide(in[i]);
      scale *= kernel[i];
    }
    return found;
  }
  // The other way round.
  Tensor outside(Tensor inside, at::IntArrayRef in) const {
    Tensor found = at::zeros_like(inside);
    std::int64_t scale = 1;
    for (std::size_t i = kernel.size(); i-- > 0;) {
      found += (inside.remainder(kernel[i]) * dilation[i] + start(i, inside)) * scale;
      inside = inside.floor_divide(kernel[i]);
      scale *= in[i];
    }
    return found;
  }

 private:
  // Where the windows of a map of outputs begin along an axis.
  Tensor start(std::size_t axis, const Tensor& out) const {
    const auto dim = static_cast<std::int64_t>(axis) + 2;
    Sizes shape(static_cast<std::size_t>(out.dim() - dim), 1);
    shape[0] = out.size(dim);
    return (at::arange(shape[0], out.options()) * stride[axis] - padding[axis]).view(shape);
  }
};

// As pack_small and unpack_small do, in torch's operations.
inline Tensor pack_by_torch(const Tensor& flat, int bits) {
  const Tensor bytes = flat.to(at::kByte);
  if (bits == 8) return bytes;
  const Tensor pairs = at::constant_pad_nd(bytes, {0, flat.numel() % 2}).view({-1, 2});
  return pairs.select(1, 0) + pairs.select(1, 1) * 16;
}
inline void unpack_by_torch(const Tensor& packed, int bits, const Tensor& flat) {
  if (bits == 8) {
    flat.copy_(packed);
    return;
  }
  const Tensor pairs = at::stack({packed.bitwise_and(15), packed.bitwise_right_shift(4)}, 1);
  flat.copy_(pairs.flatten().slice(0, 0, flat.numel()));
}

inline Tensor pack_places(const Tensor& flat, int bits) {
  if (!flat.is_cpu()) return pack_by_torch(flat, bits);
  const Tensor packed =
      at::empty({small_bytes(flat.numel(), bits)}, flat.options().dtype(at::kByte));
  pack_small(workers(), flat.numel(), flat.const_data_ptr<std::int64_t>(), bits,
             packed.data_ptr<std::uint8_t>());
  return packed;
}
inline void unpack_places(const Tensor& packed, int bits, const Tensor& flat) {
  if (!flat.is_cpu()) return unpack_by_torch(packed, bits, flat);
  unpack_small(workers(), flat.numel(), packed.const_data_ptr<std::uint8_t>(), bits,
               flat.data_ptr<std::int64_t>());
}

class MaxPoolSmall : public ::torch::autograd::Function<MaxPoolSmall> {
 public:
  static Tensor forward(::torch::autograd::AutogradContext* context, const Tensor& x,
                        const Windows& windows) {
    const auto [out, places] = windows.pool(x);
    const Order order(out);
    const Tensor inside = order.dense(windows.inside(places, x.sizes().slice(2)));
    context->save_for_backward({pack_places(Order::flat(inside), windows.bits())});
    auto& data = context->saved_data;
    data["size"] = x.sizes().vec();
    data["orders"] = Sizes{Order(x).name(), order.name()};
    data["kernel"] = windows.kernel;
    data["stride"] = windows.stride;
    data["padding"] = windows.padding;
    data["dilation"] = windows.dilation;
    data["ceil_mode"] = windows.ceil_mode;
    return out;
  }

  static ::torch::autograd::variable_list backward(::torch::autograd::AutogradContext* context,
                                                   ::torch::autograd::variable_list gradients) {
    refuse_second_derivatives("max_pool_small");
    auto& data = context->saved_data;
    const auto sizes = [&](const char* name) { return data[name].toIntVector(); };
    const Windows windows{sizes("kernel"), sizes("stride"), sizes("padding"), sizes("dilation"),
                          data["ceil_mode"].toBool()};
    const Tensor& gy = gradients[0];
    const Sizes size = sizes("size"), orders = sizes("orders");
    const Tensor places = Order(orders[1]).empty(gy.sizes(), gy.options().dtype(at::kLong));
    unpack_places(context->get_saved_variables()[0], windows.bits(), Order::flat(places));
    const Tensor like = Order(orders[0]).empty(size, gy.options());
    const Sizes in(size.begin() + 2, size.end());
    return {windows.gradient(gy, like, windows.outside(places, in)), Tensor()};
  }
};

}  // namespace detail

// x is [batch, channels, one to three axes]. Output and gradient are bit-identical to torch's max_pool,
// which it calls where a window has more than 256 elements. Without a stride windows do not
// overlap.
inline Tensor max_pool_small(const Tensor& x, at::IntArrayRef kernel, at::IntArrayRef stride = {},
                             at::IntArrayRef padding = 0, at::IntArrayRef dilation = 1,
                             bool ceil_mode = false) {
  const std::int64_t axes = x.dim() - 2;
  if (axes < 1 || axes > 3) {
    fail(ErrorCode::invalid_argument, "max_pool_small: x has ", x.dim(),
         " dimensions; they are batch, channels and one to three axes");
  }
  const auto each = [&](const char* what, at::IntArrayRef given) {
    return detail::each(what, given, axes);
  };
  detail::Windows windows{each("max_pool_small: kernel", kernel),
                          each("max_pool_small: stride", stride.empty() ? kernel : stride),
                          each("max_pool_small: padding", padding),
                          each("max_pool_small: dilation", dilation), ceil_mode};
  if (axes == 1) {  // as a map of one row
    windows.kernel.insert(windows.kernel.begin(), 1);
    windows.stride.insert(windows.stride.begin(), 1);
    windows.padding.insert(windows.padding.begin(), 0);
    windows.dilation.insert(windows.dilation.begin(), 1);
  }
  const Tensor map = axes == 1 ? x.unsqueeze(2) : x;
  const bool small = windows.elements() <= detail::kLargestWindow && x.numel() > 0;
  const Tensor out = small && detail::at_work({x}) ? detail::MaxPoolSmall::apply(map, windows)
                                                   : windows.pool(map).first;
  return axes == 1 ? out.squeeze(2) : out;
}

}  // namespace ebb::torch
