// SPDX-License-Identifier: Apache-2.0
// How a segment is spread over a GPU, and the launch of its kernels.
#pragma once

#include <string>

#include <cuda_runtime_api.h>

#include "ebb/cell/gated.h"

namespace ebb::gated {

struct Exact;

struct Gpu {
  int generation = 0;              // major number of its compute capability
  int processors = 0, shared = 0;  // shared memory that a block may have
  bool keeps = false;              // weights may lie in registers
};

struct Spread {
  int units = 0, slices = 0, teams = 0;
  int kept =
      0;  // chunks of weights that each warp has, in registers as far as they fit; 0: in shared memory
  int batch = 0;  // samples that are run at a time
};

// What no block and no kernel knows of: the host's side of a launch.
struct Host {
  long long patience = 0;
  int* gave_up = nullptr;
  cudaStream_t stream = nullptr;
};

// Of the GPU that is current.
Gpu current_gpu();
// Why it runs no kernels of this kind; empty: it does.
std::string gpu_unfit();
// Throws Error(device) if an earlier segment gave up.
void check_earlier();
Host host_of(void* stream);

template <class T>
struct OfNumber {
  static Spread spread(const GatedShape& shape, const Gpu& gpu);
  static void forward(const GatedShape& shape, const Spread& how, const GatedForward& given,
                      bool record, const Host& host);
  static void recall(const GatedShape& shape, const GatedRecall& given, const Host& host);
  static void backward(const GatedShape& shape, const Spread& how, const GatedBackward& given,
                       const Host& host);
};

}  // namespace ebb::gated
