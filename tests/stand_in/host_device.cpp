// SPDX-License-Identifier: Apache-2.0
#include "tests/stand_in/host_device.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "ebb/core/error.h"
#include "ebb/core/half_math.h"
#include "ebb/device/cuda_arrays.h"
#include "ebb/device/cuda_pool.h"
#include "ebb/device/cuda_products.h"
#include "ebb/device/cuda_stream.h"
#include "ebb/device/device_memory.h"
#include "ebb/device/pinned_memory.h"
#include "tests/stand_in/host_queue.h"

namespace ebb {
namespace {

Bytes taken = 0;
bool pinned_refused = false;
double copy_seconds = 1;

void* made_memory(Bytes bytes) {
  void* data = nullptr;
  if (::posix_memalign(&data, 512, static_cast<std::size_t>(bytes)) != 0)
    fail(ErrorCode::out_of_memory, "posix_memalign");
  std::memset(data, 0xFF, static_cast<std::size_t>(bytes));
  return data;
}

using test::HostMark;
using test::HostQueue;
using test::queue_of;
using Event = std::shared_ptr<HostMark>;  // null before it has been recorded

// Whatever others did to it before is gone then.
void spoil(void* data, Bytes bytes, void* stream) {
  queue_of(stream)->add([=] { std::memset(data, 0xFF, static_cast<std::size_t>(bytes)); });
}

// The driver's: what it has of the device, how much of that is in use, and what was given back, which stays, so that a late copy finds
// what is not a number in it.
struct HostPool {
  Bytes reserved = 0, used = 0;
  std::vector<void*> old;
};

float number_at(CudaNumber number, const void* data, std::int64_t i) {
  if (number == CudaNumber::f32) return static_cast<const float*>(data)[i];
  const std::uint16_t bits = static_cast<const std::uint16_t*>(data)[i];
  return number == CudaNumber::bf16 ? from_bf16(bits) : from_fp16(bits);
}

void put_number(CudaNumber number, void* data, std::int64_t i, float value) {
  if (number == CudaNumber::f32) {
    static_cast<float*>(data)[i] = value;
  } else {
    static_cast<std::uint16_t*>(data)[i] =
        number == CudaNumber::bf16 ? to_bf16(value) : to_fp16(value);
  }
}

void multiply_now(const CudaProduct& p) {
  const auto stride = [](std::int64_t given, std::int64_t without_gaps) {
    return given == 0 ? without_gaps : given;
  };
  const std::int64_t of_a = stride(p.a_stride, p.a_transposed ? p.rows : p.inner),
                     of_b = stride(p.b_stride, p.b_transposed ? p.inner : p.columns),
                     of_sums = stride(p.sums_stride, p.columns);
  for (std::int64_t row = 0; row < p.rows; ++row) {
    for (std::int64_t column = 0; column < p.columns; ++column) {
      const std::int64_t at = row * of_sums + column;
      float sum = p.adds ? number_at(p.sums_number, p.sums, at) : 0;
      for (std::int64_t k = 0; k < p.inner; ++k) {
        sum += number_at(p.number, p.a, p.a_transposed ? k * of_a + row : row * of_a + k) *
               number_at(p.number, p.b, p.b_transposed ? column * of_b + k : k * of_b + column);
      }
      put_number(p.sums_number, p.sums, at, sum);
    }
  }
}

}  // namespace

void test::refuse_pinned_memory(bool yes) { pinned_refused = yes; }
void test::set_copy_seconds(double seconds) { copy_seconds = seconds; }

std::string cuda_missing() { return {}; }
int cuda_device() { return 0; }
int cuda_device_count() { return 1; }
void set_cuda_device(int) {}
std::string cuda_device_name() { return "a device played by the host"; }
Bytes cuda_free_bytes() { return test::kHostDeviceBytes - taken; }

DeviceMemory::DeviceMemory(Bytes bytes) : size_(bytes) {
  if (bytes == 0) return;
  if (bytes > cuda_free_bytes()) trim_cuda_pools();
  if (bytes > cuda_free_bytes()) fail(ErrorCode::out_of_memory, "cudaMalloc: out of memory");
  data_ = static_cast<std::byte*>(made_memory(bytes));
  taken += bytes;
  std::memset(data_, 0, static_cast<std::size_t>(bytes));
}
DeviceMemory::~DeviceMemory() {
  wait_for_cuda();
  std::free(data_);
  taken -= size_;
}
void DeviceMemory::upload(std::span<const std::byte> from, void* stream) {
  if (static_cast<Bytes>(from.size()) > size_) fail(ErrorCode::invalid_argument, "upload");
  queue_of(stream)->run_all();
  std::memcpy(data_, from.data(), from.size());
}
void DeviceMemory::download(std::span<std::byte> to, void* stream) const {
  queue_of(stream)->run_all();
  std::memcpy(to.data(), data_, to.size());
}

CudaEvent::CudaEvent() : event_(new Event) {}
CudaEvent::~CudaEvent() { delete static_cast<Event*>(event_); }
void CudaEvent::record(void* stream) {
  const std::shared_ptr<HostQueue> queue = queue_of(stream);
  const Event mark = std::make_shared<HostMark>(queue, queue->given() + 1);
  *static_cast<Event*>(event_) = mark;
  queue->add([mark] { mark->time = mark->queue->time(); });
}
void CudaEvent::hold(void* stream) const {
  const Event mark = *static_cast<const Event*>(event_);
  if (mark == nullptr) return;
  const std::shared_ptr<HostQueue> queue = queue_of(stream);
  queue->add([mark, own = queue.get()] {
    mark->queue->run_up_to(mark->given);
    own->wait_until(mark->time);
  });
}
double CudaEvent::seconds_since(const CudaEvent& start) const {
  const Event from = *static_cast<const Event*>(start.event_),
              to = *static_cast<const Event*>(event_);
  from->queue->run_up_to(from->given);
  to->queue->run_up_to(to->given);
  return to->time - from->time;
}

CudaStream::CudaStream() : stream_(test::add_queue()) {}
CudaStream::~CudaStream() { test::remove_queue(stream_); }

CudaDriverPool::CudaDriverPool() : pool_(new HostPool) {}
CudaDriverPool::~CudaDriverPool() {
  wait_for_cuda();
  auto* const own = static_cast<HostPool*>(pool_);
  taken -= own->reserved;
  for (void* const data : own->old) std::free(data);
  delete own;
}
void* CudaDriverPool::take(Bytes bytes, void* stream) {
  auto* const own = static_cast<HostPool*>(pool_);
  const Bytes more = std::max<Bytes>(own->used + bytes - own->reserved, 0);
  if (more > cuda_free_bytes()) return nullptr;
  void* const data = made_memory(bytes);
  spoil(data, bytes, stream);
  taken += more;
  own->reserved += more;
  own->used += bytes;
  return data;
}
void CudaDriverPool::give_back(void* data, Bytes bytes, void* stream) noexcept {
  auto* const own = static_cast<HostPool*>(pool_);
  spoil(data, bytes, stream);
  own->old.push_back(data);
  own->used -= bytes;
}
Bytes CudaDriverPool::reserved() const { return static_cast<const HostPool*>(pool_)->reserved; }
void CudaDriverPool::trim() noexcept {
  auto* const own = static_cast<HostPool*>(pool_);
  taken -= own->reserved - own->used;
  own->reserved = own->used;
}
void wait_for_cuda() noexcept { test::run_all_queues(); }

PinnedMemory::PinnedMemory(const Ledger& ledger, const std::string& name, Bytes bytes)
    : account_(ledger.open(name)) {
  account_.charge(bytes);
  if (bytes == 0) return;
  if (pinned_refused) {
    account_.release(bytes);
    pageable_ = Buffer(ledger, name, bytes);
    return;
  }
  data_ = static_cast<std::byte*>(std::malloc(static_cast<std::size_t>(bytes)));
  std::memset(data_, 0xFF, static_cast<std::size_t>(bytes));
}
PinnedMemory::~PinnedMemory() { std::free(data_); }

void cuda_copy(void* to, const void* from, Bytes bytes, void* stream) {
  const std::shared_ptr<HostQueue> queue = queue_of(stream);
  queue->add([=] { std::memcpy(to, from, static_cast<std::size_t>(bytes)); },
             queue->is_callers() ? 0 : copy_seconds);
}
void cuda_zero(void* to, Bytes bytes, void* stream) {
  queue_of(stream)->add([=] { std::memset(to, 0, static_cast<std::size_t>(bytes)); });
}
void cuda_convert(const CudaRows& to, const CudaRows& from, std::int64_t rows, std::int64_t columns,
                  void* stream) {
  queue_of(stream)->add([=] {
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t i = 0; i < columns; ++i) {
        put_number(to.number, to.data, row * to.stride + i,
                   number_at(from.number, from.data, row * from.stride + i));
      }
    }
  });
}
void cuda_add(CudaNumber number, void* to, const float* a, const float* b, std::int64_t count,
              void* stream) {
  queue_of(stream)->add([=] {
    for (std::int64_t i = 0; i < count; ++i)
      put_number(number, to, i, b == nullptr ? a[i] : a[i] + b[i]);
  });
}
void cuda_repeat(CudaNumber number, void* to, const void* row, std::int64_t rows,
                 std::int64_t columns, void* stream) {
  queue_of(stream)->add([=] {
    for (std::int64_t i = 0; i < rows * columns; ++i)
      put_number(number, to, i, number_at(number, row, i % columns));
  });
}
void cuda_decays(float* to, const float* tau, std::int64_t count, void* stream) {
  queue_of(stream)->add([=] {
    for (std::int64_t i = 0; i < count; ++i)
      to[i] = tau[i] > 0 ? std::exp(-1 / std::min(tau[i], 1e6F)) : 0;
  });
}
void cuda_of_decays(float* gradient, const float* decays, std::int64_t count, void* stream) {
  queue_of(stream)->add([=] {
    for (std::int64_t i = 0; i < count; ++i) {
      const float log = decays[i] > 0 ? std::log(decays[i]) : 0;
      gradient[i] *= decays[i] * log * log;
    }
  });
}
void cuda_fill(CudaNumber number, void* to, float value, std::int64_t count, void* stream) {
  queue_of(stream)->add([=] {
    for (std::int64_t i = 0; i < count; ++i) put_number(number, to, i, value);
  });
}

namespace {
template <class F>
void for_each(const CudaPlaces& places, const F& f) {
  for (std::int64_t row = 0; row < places.rows; ++row) {
    for (std::int64_t i = places.starts[row]; i < places.starts[row + 1]; ++i)
      f(row * places.width + places.columns[i], i);
  }
}
}  // namespace
void cuda_scatter(CudaNumber number, void* matrix, const CudaPlaces& places, const float* numbers,
                  void* stream) {
  queue_of(stream)->add([=] {
    for_each(places, [&](std::int64_t place, std::int64_t i) {
      put_number(number, matrix, place, numbers[i]);
    });
  });
}
void cuda_gather(float* numbers, const CudaPlaces& places, const float* matrix, void* stream) {
  queue_of(stream)->add([=] {
    for_each(places, [&](std::int64_t place, std::int64_t i) { numbers[i] = matrix[place]; });
  });
}

CudaProducts::CudaProducts() = default;
CudaProducts::~CudaProducts() {}
void CudaProducts::use(void* stream, void*) { handle_ = stream; }
void CudaProducts::multiply(const CudaProduct& p) {
  queue_of(handle_)->add([p] { multiply_now(p); });
}

}  // namespace ebb
