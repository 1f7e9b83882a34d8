// SPDX-License-Identifier: Apache-2.0
#include "ebb/data/npy_set.h"

#include <algorithm>
#include <cmath>

#include "ebb/core/at.h"
#include "ebb/core/error.h"
#include "ebb/data/mapped_file.h"
#include "ebb/data/read_npy.h"
#include "ebb/data/whole_file.h"

namespace ebb {
namespace {

constexpr std::int64_t kMostClasses = 65'536;

struct File {
  std::string name;
  NumberArray array;
};

File read(const std::filesystem::path& path) { return {path.string(), map_npy(path, kNpyOrigin)}; }

template <class... Parts>
[[noreturn]] void refuse(const File& file, const Parts&... parts) {
  fail(ErrorCode::invalid_argument, file.name, " is ", shape_text(file.array.shape), "; ",
       parts...);
}

// Every number that counts: what lies beyond a sequence's length does not.
template <class Allowed>
void check_numbers(const std::string& name, const NumberArray& array, const NpySet& set,
                   Allowed allowed, const char* rule) {
  const bool has_steps = array.shape.size() == 3;
  const std::int64_t width = array.shape.back(), steps = has_steps ? array.shape[1] : 1;
  const std::int64_t of_step = has_steps ? array.strides[1] : 0;
  with_numbers(array, [&](auto numbers) {
    for (std::int64_t s = 0; s < set.samples(); ++s) {
      const bool is_short = has_steps && !set.lengths.empty();
      const std::int64_t count = is_short ? set.lengths[at(s)] : steps;
      for (std::int64_t t = 0; t < count; ++t) {
        for (std::int64_t c = 0; c < width; ++c) {
          const auto number =
              numbers[at(s * array.strides[0] + t * of_step + c * array.strides.back())];
          if (allowed(static_cast<float>(number))) continue;
          const std::string step = has_steps ? ", step " + std::to_string(t) : "";
          fail(ErrorCode::invalid_argument, name, ": sample ", s, step, ", channel ", c, " is ",
               number, "; ", rule);
        }
      }
    }
  });
}

void take_inputs(File& x, NpySet& set) {
  std::vector<std::int64_t>& shape = x.array.shape;
  const bool sound = shape.size() == 2 || shape.size() == 3;
  if (!sound || std::ranges::find(shape, 0) != shape.end()) {
    refuse(x, "it must be [N,T] or [N,T,I], none of them 0");
  }
  if (shape.size() == 2) {
    shape.push_back(1);
    x.array.strides.push_back(1);
  }
  set.shape.steps = shape[1];
  set.shape.inputs = shape[2];
  set.shape.spikes = x.array.type == NumberType::boolean;
  set.inputs = std::move(x.array);
}

void take_classes(File& y, NpySet& set) {
  const std::vector<std::int64_t>& shape = y.array.shape;
  const std::int64_t n = set.samples();
  set.shape.classes = true;
  set.shape.every_step = shape.size() == 2;
  if (shape != std::vector{n} && shape != std::vector{n, set.shape.steps}) {
    refuse(y, "classes for x must be [", n, "] or [", n, ",", set.shape.steps, "]");
  }
  with_numbers(y.array, [&](auto numbers) {
    for (std::size_t i = 0; i < y.array.count(); ++i) {
      const auto number = static_cast<std::int64_t>(numbers[i]);
      if (number < -1 || number >= kMostClasses) {
        fail(ErrorCode::invalid_argument, y.name, ": class ", number, "; allowed are 0 to ",
             kMostClasses - 1, ", and -1 for what does not count");
      }
      set.shape.outputs = std::max(set.shape.outputs, number + 1);
    }
  });
}

void take_targets(const File& y, NpySet& set) {
  const std::vector<std::int64_t>& shape = y.array.shape;
  const std::int64_t n = set.samples();
  const bool end = shape.size() == 2 && shape[0] == n;
  set.shape.every_step = shape.size() == 3 && shape[0] == n && shape[1] == set.shape.steps;
  if ((!end && !set.shape.every_step) || shape.back() == 0) {
    refuse(y, "targets for x must be [", n, ",O] or [", n, ",", set.shape.steps, ",O]");
  }
  set.shape.outputs = shape.back();
}

void take_lengths(const File& file, NpySet& set) {
  if (is_real(file.array.type) || file.array.shape != std::vector{set.samples()}) {
    refuse(file, "one whole number for each of ", set.samples(), " samples is needed");
  }
  set.lengths.resize(static_cast<std::size_t>(set.samples()));
  with_numbers(file.array, [&](auto numbers) {
    for (std::size_t i = 0; i < set.lengths.size(); ++i) {
      set.lengths[i] = static_cast<std::int64_t>(numbers[i]);
      if (set.lengths[i] >= 1 && set.lengths[i] <= set.shape.steps) continue;
      fail(ErrorCode::invalid_argument, file.name, ": sample ", i, " has length ", set.lengths[i],
           "; 1 to ", set.shape.steps, " are possible");
    }
  });
}

}  // namespace

NpySet read_npy_set(const std::filesystem::path& folder, const std::string& part) {
  NpySet set;
  File x = read(folder / ("x_" + part + ".npy"));
  take_inputs(x, set);
  File y = read(folder / ("y_" + part + ".npy"));
  if (is_real(y.array.type)) {
    take_targets(y, set);
  } else {
    take_classes(y, set);
  }
  set.wanted = std::move(y.array);
  const std::filesystem::path lengths = folder / ("lengths_" + part + ".npy");
  if (is_there(lengths)) take_lengths(read(lengths), set);
  if (is_real(set.inputs.type)) {
    check_numbers(
        x.name, set.inputs, set, [](float number) { return std::isfinite(number); },
        "inputs must be finite and within the range of float");
    forget(set.inputs.data);  // all of it was read, and a batch is little
  }
  if (is_real(set.wanted.type)) {
    check_numbers(
        y.name, set.wanted, set, [](float number) { return !std::isinf(number); },
        "targets must be finite and within the range of float, or NaN for what does not count");
  }
  return set;
}

}  // namespace ebb
