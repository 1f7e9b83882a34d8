// SPDX-License-Identifier: Apache-2.0
// Where the library is built without CUDA.
#include "ebb/core/error.h"
#include "ebb/device/cuda_arrays.h"
#include "ebb/device/cuda_driver_pool.h"
#include "ebb/device/cuda_probe.h"
#include "ebb/device/cuda_products.h"
#include "ebb/device/cuda_stream.h"
#include "ebb/device/cuda_training.h"
#include "ebb/device/device_memory.h"
#include "ebb/device/pinned_memory.h"

namespace ebb {
namespace {

constexpr const char* kWithoutCuda = "this build of ebb has no CUDA: build it with -DEBB_CUDA=ON";

[[noreturn]] void refuse() { fail(ErrorCode::unavailable, kWithoutCuda); }

}  // namespace

std::string cuda_missing() { return kWithoutCuda; }
int cuda_device() { refuse(); }
int cuda_device_count() { refuse(); }
void set_cuda_device(int) { refuse(); }
std::string cuda_device_name() { refuse(); }
Bytes cuda_free_bytes() { refuse(); }
DeviceMemory::DeviceMemory(Bytes) { refuse(); }
DeviceMemory::~DeviceMemory() {}
void DeviceMemory::upload(std::span<const std::byte>, void*) { refuse(); }
void DeviceMemory::download(std::span<std::byte>, void*) const { refuse(); }

CudaEvent::CudaEvent() { refuse(); }
CudaEvent::~CudaEvent() {}
void CudaEvent::record(void*) { refuse(); }
void CudaEvent::hold(void*) const { refuse(); }
double CudaEvent::seconds_since(const CudaEvent&) const { refuse(); }
CudaStream::CudaStream() { refuse(); }
CudaStream::~CudaStream() {}

CudaDriverPool::CudaDriverPool() { refuse(); }
CudaDriverPool::~CudaDriverPool() {}
void* CudaDriverPool::take(Bytes, void*) { refuse(); }
void CudaDriverPool::give_back(void*, Bytes, void*) noexcept {}
Bytes CudaDriverPool::reserved() const { refuse(); }
void CudaDriverPool::trim() noexcept {}
void wait_for_cuda() noexcept {}

PinnedMemory::PinnedMemory(const Ledger&, const std::string&, Bytes) { refuse(); }
PinnedMemory::~PinnedMemory() = default;

void cuda_copy(void*, const void*, Bytes, void*) { refuse(); }
void cuda_zero(void*, Bytes, void*) { refuse(); }
void cuda_convert(const CudaRows&, const CudaRows&, std::int64_t, std::int64_t, void*) { refuse(); }
void cuda_add(CudaNumber, void*, const float*, const float*, std::int64_t, void*) { refuse(); }
void cuda_repeat(CudaNumber, void*, const void*, std::int64_t, std::int64_t, void*) { refuse(); }
void cuda_decays(float*, const float*, std::int64_t, void*) { refuse(); }
void cuda_of_decays(float*, const float*, std::int64_t, void*) { refuse(); }
void cuda_fill(CudaNumber, void*, float, std::int64_t, void*) { refuse(); }
void cuda_scatter(CudaNumber, void*, const CudaPlaces&, const float*, void*) { refuse(); }
void cuda_gather(float*, const CudaPlaces&, const float*, void*) { refuse(); }

void cuda_expand_bits(CudaNumber, void*, const std::uint64_t*, std::int64_t, std::int64_t, void*) {
  refuse();
}
void cuda_cross_entropy(const CudaLosses&, const std::int32_t*, void*) { refuse(); }
void cuda_squared_error(const CudaLosses&, const float*, void*) { refuse(); }
void cuda_square_sums(double*, const float*, std::int64_t, void*) { refuse(); }
void cuda_score_sums(double*, const CudaLosses&, void*) { refuse(); }
void cuda_sgd(const CudaSgd&, float*, const float*, float*, std::int64_t, void*) { refuse(); }
void cuda_adam(const CudaAdam&, float*, const float*, float*, float*, std::int64_t, void*) {
  refuse();
}

CudaFacts cuda_facts() { refuse(); }
void cuda_launch_nothing(void*) { refuse(); }
void cuda_copy_again(void*, const void*, Bytes, std::int64_t, void*) { refuse(); }
void cuda_wait(void*) { refuse(); }

CudaProducts::CudaProducts() { refuse(); }
CudaProducts::~CudaProducts() {}
void CudaProducts::use(void*, void*) { refuse(); }
void CudaProducts::multiply(const CudaProduct&) { refuse(); }
bool cublas_is_loaded(int) { return false; }
void multiply_with(int, void*, const CudaProduct&) { refuse(); }

}  // namespace ebb
