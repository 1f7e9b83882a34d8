// SPDX-License-Identifier: Apache-2.0
#include "tests/stand_in/host_device.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
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

namespace ebb {
namespace {

Bytes taken = 0;
bool pinned_refused = false;

void* made_memory(Bytes bytes) {
  void* data = nullptr;
  if (::posix_memalign(&data, 512, static_cast<std::size_t>(bytes)) != 0)
    fail(ErrorCode::out_of_memory, "posix_memalign");
  std::memset(data, 0xFF, static_cast<std::size_t>(bytes));
  return data;
}

// The driver's: what it has of the device, how much of that is in use, and what was given back, which stays, so that a late copy finds
// what is not a number in it.
struct HostPool {
  Bytes reserved = 0, used = 0;
  std::vector<void*> old;
};

// Work that was given to a stream and has not run.
struct Queue {
  std::deque<std::function<void()>> waiting;
  std::int64_t given = 0, done = 0;

  void run_up_to(std::int64_t count) {
    for (; done < count; ++done) {
      waiting.front()();
      waiting.pop_front();
    }
  }
};

struct Mark {
  Queue* queue = nullptr;
  std::int64_t given = 0;
};

// The queues of all streams that are not the caller's.
std::map<void*, std::unique_ptr<Queue>>& queues() {
  static std::map<void*, std::unique_ptr<Queue>> all;
  return all;
}

Queue* queue_of(void* stream) {
  const auto found = queues().find(stream);
  return found == queues().end() ? nullptr : found->second.get();
}

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

}  // namespace

void test::refuse_pinned_memory(bool yes) { pinned_refused = yes; }

std::string cuda_missing() { return {}; }
int cuda_device() { return 0; }
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
  std::free(data_);
  taken -= size_;
}
void DeviceMemory::upload(std::span<const std::byte> from, void*) {
  if (static_cast<Bytes>(from.size()) > size_) fail(ErrorCode::invalid_argument, "upload");
  std::memcpy(data_, from.data(), from.size());
}
void DeviceMemory::download(std::span<std::byte> to, void*) const {
  std::memcpy(to.data(), data_, to.size());
}

CudaEvent::CudaEvent() : event_(new Mark) {}
CudaEvent::~CudaEvent() { delete static_cast<Mark*>(event_); }
void CudaEvent::record(void* stream) {
  Queue* const queue = queue_of(stream);
  *static_cast<Mark*>(event_) = {queue, queue == nullptr ? 0 : queue->given};
}
void CudaEvent::hold(void* stream) const {
  const Mark& mark = *static_cast<const Mark*>(event_);
  if (mark.queue != nullptr && mark.queue != queue_of(stream)) mark.queue->run_up_to(mark.given);
}
double CudaEvent::seconds_since(const CudaEvent&) const { return 1; }

CudaStream::CudaStream() {
  auto queue = std::make_unique<Queue>();
  stream_ = queue.get();
  queues()[stream_] = std::move(queue);
}
CudaStream::~CudaStream() {
  queue_of(stream_)->run_up_to(queue_of(stream_)->given);
  queues().erase(stream_);
}

CudaDriverPool::CudaDriverPool() : pool_(new HostPool) {}
CudaDriverPool::~CudaDriverPool() {
  auto* const own = static_cast<HostPool*>(pool_);
  taken -= own->reserved;
  for (void* const data : own->old) std::free(data);
  delete own;
}
void* CudaDriverPool::take(Bytes bytes, void*) {
  auto* const own = static_cast<HostPool*>(pool_);
  const Bytes more = std::max<Bytes>(own->used + bytes - own->reserved, 0);
  if (more > cuda_free_bytes()) return nullptr;
  void* const data = made_memory(bytes);
  taken += more;
  own->reserved += more;
  own->used += bytes;
  return data;
}
void CudaDriverPool::give_back(void* data, Bytes bytes, void*) noexcept {
  auto* const own = static_cast<HostPool*>(pool_);
  std::memset(data, 0xFF, static_cast<std::size_t>(bytes));
  own->old.push_back(data);
  own->used -= bytes;
}
Bytes CudaDriverPool::reserved() const { return static_cast<const HostPool*>(pool_)->reserved; }
void CudaDriverPool::trim() noexcept {
  auto* const own = static_cast<HostPool*>(pool_);
  taken -= own->reserved - own->used;
  own->reserved = own->used;
}
void wait_for_cuda() noexcept {}

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
  const auto copy = [=] { std::memcpy(to, from, static_cast<std::size_t>(bytes)); };
  Queue* const queue = queue_of(stream);
  if (queue == nullptr) return copy();
  queue->waiting.emplace_back(copy);
  ++queue->given;
}
void cuda_zero(void* to, Bytes bytes, void*) {
  std::memset(to, 0, static_cast<std::size_t>(bytes));
}
void cuda_convert(const CudaRows& to, const CudaRows& from, std::int64_t rows, std::int64_t columns,
                  void*) {
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t i = 0; i < columns; ++i) {
      put_number(to.number, to.data, row * to.stride + i,
                 number_at(from.number, from.data, row * from.stride + i));
    }
  }
}
void cuda_add(CudaNumber number, void* to, const float* a, const float* b, std::int64_t count,
              void*) {
  for (std::int64_t i = 0; i < count; ++i)
    put_number(number, to, i, b == nullptr ? a[i] : a[i] + b[i]);
}
void cuda_repeat(CudaNumber number, void* to, const void* row, std::int64_t rows,
                 std::int64_t columns, void*) {
  for (std::int64_t i = 0; i < rows * columns; ++i)
    put_number(number, to, i, number_at(number, row, i % columns));
}
void cuda_fill(CudaNumber number, void* to, float value, std::int64_t count, void*) {
  for (std::int64_t i = 0; i < count; ++i) put_number(number, to, i, value);
}

CudaProducts::CudaProducts() = default;
CudaProducts::~CudaProducts() {}
void CudaProducts::use(void*, void*) {}
void CudaProducts::multiply(const CudaProduct& p) {
  for (std::int64_t row = 0; row < p.rows; ++row) {
    for (std::int64_t column = 0; column < p.columns; ++column) {
      const std::int64_t at = row * p.columns + column;
      float sum = p.adds ? number_at(p.sums_number, p.sums, at) : 0;
      for (std::int64_t k = 0; k < p.inner; ++k) {
        sum += number_at(p.number, p.a, p.a_transposed ? k * p.rows + row : row * p.inner + k) *
               number_at(p.number, p.b,
                         p.b_transposed ? column * p.inner + k : k * p.columns + column);
      }
      put_number(p.sums_number, p.sums, at, sum);
    }
  }
}

}  // namespace ebb
