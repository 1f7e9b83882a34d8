// SPDX-License-Identifier: Apache-2.0
// One split of the task npy: arrays of the user that belong together. Private.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "ebb/data/number_array.h"
#include "ebb/data/task.h"

namespace ebb {

inline constexpr const char* kNpyOrigin =
    "save yours with numpy.save: x_train.npy [N,T,I] and y_train.npy, whole numbers for classes "
    "[N] or [N,T], others for targets [N,O] or [N,T,O]";

struct NpySet {
  TaskShape shape;                    // its own T; outputs of classes: as many as occur here
  NumberArray inputs;                 // [N,T,I]
  NumberArray wanted;                 // classes [N] or [N,T], targets [N,O] or [N,T,O]
  std::vector<std::int64_t> lengths;  // [N], or empty: all T

  std::int64_t samples() const { return inputs.shape.empty() ? 0 : inputs.shape[0]; }
};

// Reads x_<part>.npy, y_<part>.npy and, if it is there, lengths_<part>.npy. Throws Error(io) for
// files that are missing, Error(invalid_argument) for arrays that do not go together.
NpySet read_npy_set(const std::filesystem::path& folder, const std::string& part);

}  // namespace ebb
