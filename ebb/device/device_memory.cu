// SPDX-License-Identifier: Apache-2.0
#include "ebb/device/device_memory.h"

#include "ebb/device/cuda_call.cuh"
#include "ebb/device/cuda_pool.h"

namespace ebb {
namespace {

void check_fits(const char* what, std::size_t bytes, Bytes size) {
  if (static_cast<Bytes>(bytes) <= size) return;
  fail(ErrorCode::invalid_argument, "DeviceMemory::", what, ": ", bytes, " bytes; there are ",
       size);
}

// `to` and `from` in the order of the stream, and waits.
void copy(void* to, const void* from, std::size_t bytes, void* stream) {
  auto* const own = static_cast<cudaStream_t>(stream);
  if (bytes == 0) return;
  check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, own), "cudaMemcpyAsync");
  check_cuda(cudaStreamSynchronize(own), "cudaStreamSynchronize");
}

}  // namespace

std::string cuda_missing() {
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status == cudaSuccess && devices > 0) return {};
  cudaGetLastError();  // or the next call would tell of it again
  if (status == cudaSuccess) return "there is no CUDA device";
  return std::string("there is no CUDA device that can be used (cudaGetDeviceCount: ") +
         cudaGetErrorString(status) + ")";
}

int cuda_device() {
  int device = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  return device;
}

int cuda_device_count() {
  int devices = 0;
  check_cuda(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
  return devices;
}

void set_cuda_device(int device) { check_cuda(cudaSetDevice(device), "cudaSetDevice"); }

std::string cuda_device_name() {
  cudaDeviceProp found = {};
  check_cuda(cudaGetDeviceProperties(&found, cuda_device()), "cudaGetDeviceProperties");
  return std::string(found.name) + ", " + format_bytes(static_cast<Bytes>(found.totalGlobalMem));
}

Bytes cuda_free_bytes() {
  std::size_t unused = 0, all = 0;
  check_cuda(cudaMemGetInfo(&unused, &all), "cudaMemGetInfo");
  return static_cast<Bytes>(unused);
}

DeviceMemory::DeviceMemory(Bytes bytes) : size_(bytes) {
  if (bytes < 0) fail(ErrorCode::invalid_argument, "DeviceMemory: ", bytes, " bytes");
  if (bytes == 0) return;
  void* data = nullptr;
  cudaError_t status = cudaMalloc(&data, static_cast<std::size_t>(bytes));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    trim_cuda_pools();
    status = cudaMalloc(&data, static_cast<std::size_t>(bytes));
  }
  check_cuda(status, "cudaMalloc");
  status = cudaMemset(data, 0, static_cast<std::size_t>(bytes));
  // Streams that do not wait for the default one would not wait for the zeros.
  if (status == cudaSuccess) status = cudaStreamSynchronize(nullptr);
  if (status != cudaSuccess) cudaFree(data);
  check_cuda(status, "cudaMemset");
  data_ = static_cast<std::byte*>(data);
}

DeviceMemory::~DeviceMemory() {
  if (data_ != nullptr) cudaFree(data_);
}

void DeviceMemory::upload(std::span<const std::byte> from, void* stream) {
  check_fits("upload", from.size(), size_);
  copy(data_, from.data(), from.size(), stream);
}

void DeviceMemory::download(std::span<std::byte> to, void* stream) const {
  check_fits("download", to.size(), size_);
  copy(to.data(), data_, to.size(), stream);
}

}  // namespace ebb
