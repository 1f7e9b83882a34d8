// SPDX-License-Identifier: Apache-2.0
// cuBLAS is declared here as far as it is used, since its headers come in a package apart and its versions 12 and 13 agree on this part.
#include "ebb/device/cuda_products.h"

#include <dlfcn.h>

#include <array>
#include <iterator>
#include <limits>
#include <mutex>
#include <optional>
#include <string>

#include <library_types.h>

#include "ebb/device/cuda_call.cuh"

namespace ebb {
namespace {

using Status = int;
using Handle = void*;

constexpr Status kAllocationFailed = 3;
constexpr int kPlain = 0, kTransposed = 1;
// Sums of 16-bit products stay float32 between parts that are added up, too.
constexpr int kNoReducedSums = 16;
constexpr int kCompute32 = 68, kComputeTf32 = 77;
constexpr int kDefaultAlgorithm = -1;

constexpr const char* kNames[] = {"libcublas.so.13", "libcublas.so.12"};

void* loaded_library(const char* name) { return dlopen(name, RTLD_NOW | RTLD_NOLOAD); }

// The one that the process uses already, then the newest of the system.
void* find_library() {
  for (const char* const name : kNames) {
    if (void* const found = loaded_library(name)) return found;
  }
  for (const char* const folder : {"", "/usr/local/cuda/lib64/"}) {
    for (const char* const name : kNames) {
      if (void* const found = dlopen((folder + std::string(name)).c_str(), RTLD_NOW)) return found;
    }
  }
  const char* const why = dlerror();
  fail(ErrorCode::unavailable, "networks on a CUDA device need cuBLAS: neither ", kNames[0],
       " nor ", kNames[1], " can be loaded (", why == nullptr ? "no reason is given" : why,
       "); install it or add its folder to LD_LIBRARY_PATH");
}

struct Library {
  explicit Library(void* found) : library(found) {
    find(create, "cublasCreate_v2");
    find(destroy, "cublasDestroy_v2");
    find(set_stream, "cublasSetStream_v2");
    find(set_workspace, "cublasSetWorkspace_v2");
    find(set_math, "cublasSetMathMode");
    find(gemm, "cublasGemmEx");
    find(words, "cublasGetStatusString");
  }

  template <class Function>
  void find(Function*& to, const char* name) {
    to = reinterpret_cast<Function*>(dlsym(library, name));
    if (to == nullptr) fail(ErrorCode::unavailable, "cuBLAS has no function ", name);
  }

  void check(Status status, const char* call) const {
    if (status == 0) return;
    fail(status == kAllocationFailed ? ErrorCode::out_of_memory : ErrorCode::device, call, ": ",
         words(status));
  }

  void* library;
  Status (*create)(Handle*);
  Status (*destroy)(Handle);
  Status (*set_stream)(Handle, cudaStream_t);
  Status (*set_workspace)(Handle, void*, std::size_t);
  Status (*set_math)(Handle, int);
  Status (*gemm)(Handle, int, int, int, int, int, const void*, const void*, cudaDataType_t, int,
                 const void*, cudaDataType_t, int, const void*, void*, cudaDataType_t, int, int,
                 int);
  const char* (*words)(Status);
};

// Stays loaded: others may have found it here.
const Library& cublas() {
  static const Library library(find_library());
  return library;
}

// Others have loaded it, and have its handles. Null: not yet loaded.
const Library* others_cublas(int version) {
  static std::mutex mutex;
  static std::array<std::optional<Library>, std::size(kNames)> libraries;
  if (version != 12 && version != 13) return nullptr;
  const std::size_t which = version == 13 ? 0 : 1;
  const std::scoped_lock lock(mutex);
  if (!libraries[which]) {
    void* const found = loaded_library(kNames[which]);
    if (found == nullptr) return nullptr;
    libraries[which].emplace(found);
  }
  return &*libraries[which];
}

cudaDataType_t type_of(CudaNumber number) {
  if (number == CudaNumber::bf16) return CUDA_R_16BF;
  return number == CudaNumber::f16 ? CUDA_R_16F : CUDA_R_32F;
}

int size_of(std::int64_t size) {
  if (size < 1 || size > std::numeric_limits<int>::max()) {
    fail(ErrorCode::invalid_argument, "a matrix on the device has a side of ", size,
         "; it must be 1 to ", std::numeric_limits<int>::max());
  }
  return static_cast<int>(size);
}

// cuBLAS has columns where we have rows: it is asked for the transposed of the sums, the transposed of b times that of a.
void gemm(const Library& library, Handle handle, const CudaProduct& p) {
  const int rows = size_of(p.rows), columns = size_of(p.columns), inner = size_of(p.inner);
  const float one = 1, factor = p.adds ? 1 : 0;
  const auto stride = [](std::int64_t given, int without_gaps) {
    return given == 0 ? without_gaps : size_of(given);
  };
  const cudaDataType_t type = type_of(p.number);
  // Or others' wish for tf32 would be obeyed.
  library.check(library.set_math(handle, kNoReducedSums), "cublasSetMathMode");
  library.check(library.gemm(handle, p.b_transposed ? kTransposed : kPlain,
                             p.a_transposed ? kTransposed : kPlain, columns, rows, inner, &one, p.b,
                             type, stride(p.b_stride, p.b_transposed ? inner : columns), p.a, type,
                             stride(p.a_stride, p.a_transposed ? rows : inner), &factor, p.sums,
                             type_of(p.sums_number), stride(p.sums_stride, columns),
                             p.number == CudaNumber::f32 && p.tf32 ? kComputeTf32 : kCompute32,
                             kDefaultAlgorithm),
                "cublasGemmEx");
}

}  // namespace

CudaProducts::CudaProducts() { cublas().check(cublas().create(&handle_), "cublasCreate"); }

CudaProducts::~CudaProducts() { cublas().destroy(handle_); }

void CudaProducts::use(void* stream, void* workspace) {
  // In this order: a change of the stream makes cuBLAS forget a workspace.
  cublas().check(cublas().set_stream(handle_, static_cast<cudaStream_t>(stream)),
                 "cublasSetStream");
  cublas().check(cublas().set_workspace(handle_, workspace, static_cast<std::size_t>(kWorkspace)),
                 "cublasSetWorkspace");
}

void CudaProducts::multiply(const CudaProduct& product) { gemm(cublas(), handle_, product); }

bool cublas_is_loaded(int version) { return others_cublas(version) != nullptr; }

void multiply_with(int cublas_version, void* handle, const CudaProduct& product) {
  const Library* const library = others_cublas(cublas_version);
  if (library == nullptr)
    fail(ErrorCode::unavailable, "cuBLAS ", cublas_version, " is not loaded in this process");
  gemm(*library, handle, product);
}

}  // namespace ebb
