// SPDX-License-Identifier: Apache-2.0
// A user's file from before headers moved: each old path leads to the new one.
#include <ebb/codec/block_pool.h>
#include <ebb/codec/conv_shape.h>
#include <ebb/codec/int8_rows.h>
#include <ebb/codec/pooled_gradient.h>
#include <ebb/codec/sign_bits.h>
#include <ebb/codec/small_indices.h>
#include <ebb/train/batch.h>
#include <ebb/train/sampler.h>
#include <ebb/train/task.h>

std::int64_t blocks() { return ebb::ConvShape{}.blocks(); }
std::int64_t first_sample() { return ebb::Sampler(1, 1).batch(0, 1).front(); }
