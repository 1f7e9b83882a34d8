// SPDX-License-Identifier: Apache-2.0
// A user's file from before headers moved: each old path leads to the new one.
#include <ebb/train/batch.h>
#include <ebb/train/sampler.h>
#include <ebb/train/task.h>

std::int64_t first_sample() { return ebb::Sampler(1, 1).batch(0, 1).front(); }
