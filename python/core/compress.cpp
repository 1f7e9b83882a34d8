// SPDX-License-Identifier: Apache-2.0
// The arithmetic of compressed activations over contiguous arrays given by address.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <limits>

#include "ebb/compress/block_pool.h"
#include "ebb/compress/int8_rows.h"
#include "ebb/compress/pooled_gradient.h"
#include "ebb/compress/sign_bits.h"
#include "ebb/compress/small_indices.h"
#include "ebb/core/error.h"
#include "python/core/topics.h"
#include "python/core/worker_pool.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace ebb::python {
namespace {

using Address = std::uintptr_t;
using Sizes = std::vector<std::int64_t>;
// in, out, kernel, stride, padding, dilation, block
using Axis = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                        std::int64_t, std::int64_t>;

template <class Number>
Number* pointer(Address address) {
  if (address == 0) fail(ErrorCode::invalid_argument, "an array's address is 0");
  return reinterpret_cast<Number*>(address);  // NOLINT(performance-no-int-to-ptr)
}

template <class Number>
Number* pointer_or_null(Address address) {
  return address == 0 ? nullptr : pointer<Number>(address);
}

// work(Number{}) for the type of that name.
template <class Work>
void with_number(const std::string& dtype, const Work& work) {
  if (dtype == "float32") return work(float{});
  if (dtype == "float64") return work(double{});
  fail(ErrorCode::invalid_argument, "dtype is '", dtype, "'; it must be 'float32' or 'float64'");
}

template <class Work>
void with_index(const std::string& dtype, const Work& work) {
  if (dtype == "int64") return work(std::int64_t{});
  if (dtype == "uint8") return work(std::uint8_t{});
  fail(ErrorCode::invalid_argument, "dtype is '", dtype, "'; it must be 'int64' or 'uint8'");
}

void check_count(const char* what, std::int64_t count) {
  if (count < 0) {
    fail(ErrorCode::invalid_argument, what, ": count is ", count, "; it must be at least 0");
  }
}

void check_axes(const char* what, std::size_t axes) {
  if (axes < 1 || axes > 3) {
    fail(ErrorCode::invalid_argument, what, ": ", axes, " axes; there must be 1, 2 or 3");
  }
}

void pool(const std::string& dtype, std::int64_t planes, const Sizes& sizes, const Sizes& block,
          const std::string& kind, Address x, Address pooled, int threads) {
  check_axes("pool_blocks", sizes.size());
  check_count("pool_blocks", planes);
  if (planes == 0) return;
  if (block.size() != sizes.size()) {
    fail(ErrorCode::invalid_argument, "pool_blocks: ", block.size(), " blocks for ", sizes.size(),
         " axes; one for each axis");
  }
  if (kind != "average" && kind != "max") {
    fail(ErrorCode::invalid_argument, "pool_blocks: kind is '", kind,
         "'; it must be 'average' or 'max'");
  }
  std::array<PoolAxis, 3> axes;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    axes[3 - sizes.size() + i] = {sizes[i], block[i]};
  }
  const Pooling pooling = kind == "max" ? Pooling::max : Pooling::average;
  with_number(dtype, [&]<class Number>(Number) {
    with_workers(threads, [&](Workers& workers) {
      pool_blocks(workers, planes, axes, pooling, pointer<const Number>(x),
                  pointer<Number>(pooled));
    });
  });
}

ConvShape shape_of(std::int64_t batch, std::int64_t in_channels, std::int64_t out_channels,
                   std::int64_t groups, const std::vector<Axis>& axes) {
  check_axes("pooled_weight_gradient", axes.size());
  ConvShape shape{batch, in_channels, out_channels, groups, {}};
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const auto& [in, out, kernel, stride, padding, dilation, block] = axes[i];
    shape.axes[3 - axes.size() + i] = {in, out, kernel, stride, padding, dilation, block};
  }
  return shape;
}

void weight_gradient(const std::string& dtype, std::int64_t batch, std::int64_t in_channels,
                     std::int64_t out_channels, std::int64_t groups, const std::vector<Axis>& axes,
                     Address pooled, Address gy, Address gw, int threads) {
  const ConvShape shape = shape_of(batch, in_channels, out_channels, groups, axes);
  with_number(dtype, [&]<class Number>(Number) {
    with_workers(threads, [&](Workers& workers) {
      pooled_weight_gradient(workers, shape, pointer<const Number>(pooled),
                             pointer<const Number>(gy), pointer<Number>(gw));
    });
  });
}

Through through_of(const std::string& rule) {
  if (rule == "relu") return Through::positive_or_nan;
  if (rule == "positive") return Through::positive;
  if (rule == "between") return Through::between;
  fail(ErrorCode::invalid_argument, "sign_bits: rule is '", rule,
       "'; it must be 'relu', 'positive' or 'between'");
}

void bits_of(const std::string& dtype, std::int64_t count, Address x, Address bits,
             const std::string& rule, double low, double high, int threads) {
  check_count("sign_bits", count);
  if (count == 0) return;
  const Through through = through_of(rule);
  with_number(dtype, [&]<class Number>(Number) {
    with_workers(threads, [&](Workers& workers) {
      sign_bits(workers, count, pointer<const Number>(x), through, static_cast<Number>(low),
                static_cast<Number>(high), pointer<std::uint8_t>(bits));
    });
  });
}

void mask(const std::string& dtype, std::int64_t count, Address bits, Address gy, Address gx,
          std::optional<double> slope, int threads) {
  check_count("masked", count);
  if (count == 0) return;
  with_number(dtype, [&]<class Number>(Number) {
    const auto* const set = pointer<const std::uint8_t>(bits);
    with_workers(threads, [&](Workers& workers) {
      if (slope) {
        masked_slope(workers, count, set, pointer<const Number>(gy), static_cast<Number>(*slope),
                     pointer<Number>(gx));
      } else {
        masked(workers, count, set, pointer<const Number>(gy), pointer<Number>(gx));
      }
    });
  });
}

void pack_indices(const std::string& dtype, std::int64_t count, Address indices, int bits,
                  Address packed, int threads) {
  check_count("pack_small", count);
  if (count == 0) return;
  with_index(dtype, [&]<class Index>(Index) {
    with_workers(threads, [&](Workers& workers) {
      pack_small(workers, count, pointer<const Index>(indices), bits,
                 pointer<std::uint8_t>(packed));
    });
  });
}

void unpack_indices(const std::string& dtype, std::int64_t count, Address packed, int bits,
                    Address indices, int threads) {
  check_count("unpack_small", count);
  if (count == 0) return;
  with_index(dtype, [&]<class Index>(Index) {
    with_workers(threads, [&](Workers& workers) {
      unpack_small(workers, count, pointer<const std::uint8_t>(packed), bits,
                   pointer<Index>(indices));
    });
  });
}

void encode_channels(const std::string& dtype, std::int64_t batch, std::int64_t channels,
                     std::int64_t inner, Address x, Address mean, Address codes, Address scales,
                     int threads) {
  with_number(dtype, [&]<class Number>(Number) {
    with_workers(threads, [&](Workers& workers) {
      int8_channels_encode(workers, {batch, channels, inner}, pointer<const Number>(x),
                           pointer_or_null<const Number>(mean), pointer<std::int8_t>(codes),
                           pointer<float>(scales));
    });
  });
}

void decode_channels(const std::string& dtype, std::int64_t batch, std::int64_t channels,
                     std::int64_t inner, Address codes, Address scales, Address mean, Address x,
                     int threads) {
  with_number(dtype, [&]<class Number>(Number) {
    with_workers(threads, [&](Workers& workers) {
      int8_channels_decode(workers, {batch, channels, inner}, pointer<const std::int8_t>(codes),
                           pointer<const float>(scales), pointer_or_null<const Number>(mean),
                           pointer<Number>(x));
    });
  });
}

void encode_blocks(const std::string& dtype, std::int64_t count, Address x, Address codes,
                   Address scales, int threads) {
  check_count("int8_blocks_encode", count);
  if (count == 0) return;
  with_number(dtype, [&]<class Number>(Number) {
    with_workers(threads, [&](Workers& workers) {
      int8_blocks_encode(workers, count, pointer<const Number>(x), pointer<std::int8_t>(codes),
                         pointer<float>(scales));
    });
  });
}

void decode_blocks(const std::string& dtype, std::int64_t count, Address codes, Address scales,
                   Address x, int threads) {
  check_count("int8_blocks_decode", count);
  if (count == 0) return;
  with_number(dtype, [&]<class Number>(Number) {
    with_workers(threads, [&](Workers& workers) {
      int8_blocks_decode(workers, count, pointer<const std::int8_t>(codes),
                         pointer<const float>(scales), pointer<Number>(x));
    });
  });
}

}  // namespace

void bind_compress(nb::module_& module) {
  using Released = nb::call_guard<nb::gil_scoped_release>;
  module.def("pool_blocks", &pool, "dtype"_a, "planes"_a, "sizes"_a, "block"_a, "kind"_a, "x"_a,
             "pooled"_a, "threads"_a = 1, Released());
  module.def("pooled_weight_gradient", &weight_gradient, "dtype"_a, "batch"_a, "in_channels"_a,
             "out_channels"_a, "groups"_a, "axes"_a, "pooled"_a, "gy"_a, "gw"_a, "threads"_a = 1,
             Released());
  // Bytes of scratch that pooled_weight_gradient takes.
  module.def(
      "pooled_gradient_scratch",
      [](const std::string& dtype, std::int64_t batch, std::int64_t in_channels,
         std::int64_t out_channels, std::int64_t groups, const std::vector<Axis>& axes,
         int threads) {
        const ConvShape shape = shape_of(batch, in_channels, out_channels, groups, axes);
        std::int64_t bytes = 0;
        with_number(dtype, [&]<class Number>(Number) {
          bytes = pooled_gradient_scratch<Number>(shape, threads);
        });
        return bytes;
      },
      "dtype"_a, "batch"_a, "in_channels"_a, "out_channels"_a, "groups"_a, "axes"_a,
      "threads"_a = 1);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  module.def("sign_bits", &bits_of, "dtype"_a, "count"_a, "x"_a, "bits"_a, "rule"_a = "relu",
             "low"_a = -kInfinity, "high"_a = kInfinity, "threads"_a = 1, Released());
  module.def("masked", &mask, "dtype"_a, "count"_a, "bits"_a, "gy"_a, "gx"_a,
             "slope"_a = nb::none(), "threads"_a = 1, Released());
  module.def("pack_small", &pack_indices, "dtype"_a, "count"_a, "indices"_a, "bits"_a, "packed"_a,
             "threads"_a = 1, Released());
  module.def("unpack_small", &unpack_indices, "dtype"_a, "count"_a, "packed"_a, "bits"_a,
             "indices"_a, "threads"_a = 1, Released());
  module.def("int8_channels_encode", &encode_channels, "dtype"_a, "batch"_a, "channels"_a,
             "inner"_a, "x"_a, "mean"_a, "codes"_a, "scales"_a, "threads"_a = 1, Released());
  module.def("int8_channels_decode", &decode_channels, "dtype"_a, "batch"_a, "channels"_a,
             "inner"_a, "codes"_a, "scales"_a, "mean"_a, "x"_a, "threads"_a = 1, Released());
  module.def("int8_blocks_encode", &encode_blocks, "dtype"_a, "count"_a, "x"_a, "codes"_a,
             "scales"_a, "threads"_a = 1, Released());
  module.def("int8_blocks_decode", &decode_blocks, "dtype"_a, "count"_a, "codes"_a, "scales"_a,
             "x"_a, "threads"_a = 1, Released());
}

}  // namespace ebb::python
