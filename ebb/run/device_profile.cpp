// SPDX-License-Identifier: Apache-2.0
#include "ebb/run/device_profile.h"

#include <algorithm>
#include <limits>

#include "ebb/core/clock.h"
#include "ebb/core/error.h"
#include "ebb/device/cuda_arrays.h"
#include "ebb/device/cuda_stream.h"
#include "ebb/device/device_memory.h"
#include "ebb/device/pinned_memory.h"

namespace ebb {
namespace {

// Closer where L2 caches end.
constexpr Bytes kSets[] = {2_MiB,  4_MiB,  8_MiB,   16_MiB,  24_MiB,  32_MiB, 48_MiB,
                           64_MiB, 96_MiB, 128_MiB, 256_MiB, 512_MiB, 1_GiB};
constexpr int kLaunches = 1000, kAnswers = 100;
constexpr Bytes kSmall = 64;
constexpr double kClearly = 1.3;

// The least of several times.
template <class Measure>
double quickest(int repeat, const Measure& measure) {
  double best = std::numeric_limits<double>::infinity();
  for (int k = 0; k < repeat; ++k) best = std::min(best, static_cast<double>(measure()));
  return best;
}

// What the device takes for what `work` gives the stream.
template <class Work>
double device_seconds(void* stream, const Work& work) {
  CudaEvent begins, ends;
  begins.record(stream);
  work();
  ends.record(stream);
  return ends.seconds_since(begins);
}

void measure_copies(const DeviceProfileOptions& options, DeviceProfile& found) {
  const Bytes room = std::min(options.largest, cuda_free_bytes() / 2);
  const DeviceMemory memory(room);
  for (const Bytes set : kSets) {
    if (set > room) break;
    const Bytes half = set / 2;
    const std::int64_t times = std::max<std::int64_t>(options.copied / half, 1);
    const auto copy = [&](std::int64_t rounds) {
      cuda_copy_again(memory.data() + half, memory.data(), half, rounds, nullptr);
    };
    copy(1);  // what was copied before leaves the cache
    const double seconds =
        quickest(options.repeat, [&] { return device_seconds(nullptr, [&] { copy(times); }); });
    const double rate = static_cast<double>(half * times) / seconds;
    found.copies.push_back({set, rate});
    if (set <= found.facts.cache) found.cache_rate = std::max(found.cache_rate, rate);
    found.memory_rate = rate;
  }
}

// Until the host knows.
template <class Work>
double answer_of(int repeat, void* stream, const Work& work) {
  work();
  cuda_wait(stream);
  return quickest(repeat, [&] {
    const double begin = seconds_now();
    for (int k = 0; k < kAnswers; ++k) {
      work();
      cuda_wait(stream);
    }
    return (seconds_now() - begin) / kAnswers;
  });
}

void measure_transfers(const DeviceProfileOptions& options, DeviceProfile& found) {
  const Bytes bytes = options.transfer;
  const Ledger ledger;
  const PinnedMemory out(ledger, "host memory", bytes), in(ledger, "host memory", bytes);
  const DeviceMemory from(bytes), to(bytes);
  found.pinned = out.is_pinned() && in.is_pinned();
  const CudaStream up, down;
  const auto send = [&](Bytes size) { cuda_copy(out.data(), from.data(), size, up.get()); };
  const auto fetch = [&](Bytes size) { cuda_copy(to.data(), in.data(), size, down.get()); };
  send(bytes);  // pages are touched before anything counts
  fetch(bytes);
  const auto rate = [&](Bytes moved, const auto& measure) {
    return static_cast<double>(moved) / quickest(options.repeat, measure);
  };
  found.to_host.rate = rate(bytes, [&] { return device_seconds(up.get(), [&] { send(bytes); }); });
  found.to_device.rate =
      rate(bytes, [&] { return device_seconds(down.get(), [&] { fetch(bytes); }); });
  found.both_rate = rate(2 * bytes, [&] {
    return device_seconds(up.get(), [&] {
      CudaEvent begins, ends;
      begins.record(up.get());
      begins.hold(down.get());
      fetch(bytes);
      send(bytes);
      ends.record(down.get());
      ends.hold(up.get());
    });
  });
  found.to_host.latency = answer_of(options.repeat, up.get(), [&] { send(kSmall); });
  found.to_device.latency = answer_of(options.repeat, down.get(), [&] { fetch(kSmall); });
}

void measure_launches(const DeviceProfileOptions& options, DeviceProfile& found) {
  const CudaStream stream;
  const auto launch = [&] { cuda_launch_nothing(stream.get()); };
  found.answer_seconds = answer_of(options.repeat, stream.get(), launch);
  // By the host's clock: it takes as long as the device to launch what does nothing.
  found.launch_seconds = quickest(options.repeat, [&] {
    const double begin = seconds_now();
    for (int k = 0; k < kLaunches; ++k) launch();
    cuda_wait(stream.get());
    return (seconds_now() - begin) / kLaunches;
  });
}

}  // namespace

bool DeviceProfile::duplex() const {
  return both_rate > kClearly * std::max(to_host.rate, to_device.rate);
}

DeviceProfile profile_device(const DeviceProfileOptions& options) {
  const std::string missing = cuda_missing();
  if (!missing.empty()) fail(ErrorCode::unavailable, "profile_device: ", missing);
  DeviceProfile found;
  found.facts = cuda_facts();
  measure_copies(options, found);
  measure_transfers(options, found);
  measure_launches(options, found);
  return found;
}

Platform platform_of(const DeviceProfile& found) {
  Platform platform;
  platform.name = "probed";
  platform.fast = found.facts.unused;
  platform.copy_rate = found.memory_rate;
  Tier& host = platform.tiers.emplace_back();
  host.name = "host";
  host.write_rate = found.to_host.rate;
  host.read_rate = found.to_device.rate;
  host.write_latency = found.to_host.latency;
  host.read_latency = found.to_device.latency;
  host.duplex = found.duplex();
  return platform;
}

}  // namespace ebb
