// SPDX-License-Identifier: Apache-2.0
// The recurrent product of gated cells: a block's weights with what other blocks have just written, shared out to the warps of a team,
// whose parts are put together in shared memory.
//
// To be included after gated_numbers.cuh, or after what stands in for it.
#pragma once

#include <cstdint>

namespace ebb::gated {

constexpr int kSlice = 16, kWarps = kTeam / 32, kTeams = 2;

struct Segment {
  int steps = 0, batch = 0, hidden = 0;
  int first = 0, end = 0;  // samples that are run
  int teams = 0;           // of a block
  bool backwards = false;
  long long patience = 0;
  int* gave_up = nullptr;  // in memory that the host sees

  __device__ __forceinline__ size_t at(int t) const {
    return static_cast<size_t>(backwards ? steps - 1 - t : t) * batch;
  }
};

__host__ __device__ constexpr int tiles(int rows) { return (rows + 15) / 16; }
// Bytes from row to row of the weights: 8 lanes that read 16 bytes each of two rows meet every bank once.
__host__ __device__ constexpr int row_bytes(int numbers, int size) {
  return (numbers * size + 127) / 128 * 128 + 64;
}
// Numbers of one warp's part of a product.
__host__ __device__ constexpr int part_size(int rows) { return tiles(rows) * 16 * kSlice; }
// Where one of them lies: pairs of samples stay together, and the lanes of a warp meet as few banks twice as can be, when they write
// fragments and when they read neighbouring units.
__device__ __forceinline__ int part_at(int row, int sample) {
  const int pair = row / 2;
  return row * kSlice + (sample ^ ((pair & 1) << 3 | (pair & 2) << 1 | (pair & 4) >> 1));
}

// Hands a number to other blocks. All lanes of a warp call it, even ones and the next with neighbouring places: words are written whole.
template <class T>
__device__ __forceinline__ void tell(T* at, float x, bool real, int thread) {
  if constexpr (sizeof(T) == 4) {
    const std::uint32_t word = word_of(x);
    if (real) put(at, word == kAbsent ? kAbsent >> 1 : word);  // a NaN that a caller has made
  } else {
    const float next = of_next_lane(x);
    if (real && thread % 2 == 0) put(at, Multiplied<T>::pair(x, next));
  }
}

// Reads vectors that other blocks write; `looked`: they have been looked at once. false: they did not come in time.
template <int count, class Where>
__device__ __forceinline__ bool read_when_there(uint4 (&found)[count], const Where& where,
                                                bool looked, bool is_there, long long patience) {
  unsigned left = (1U << count) - 1;  // the same for all lanes
  for (long long looks = 0; looks <= patience; ++looks) {
#pragma unroll
    for (int i = 0; i < count; ++i) {
      if (!looked && (left >> i & 1) != 0) found[i] = look(where(i));
    }
    looked = false;
    if (is_there) return true;
    unsigned absent = 0;
#pragma unroll
    for (int i = 0; i < count; ++i) absent |= is_absent(found[i]) ? 1U << i : 0;
    left = bits_of_any(absent);
    if (left == 0) return true;
    // One of them, so that waiting leaves the memory to those who work.
    const int last = highest_bit(left);
    while (any(is_absent(look(where(last)))) && ++looks <= patience) continue;
  }
  return false;
}

// What a thread is among those of its team, and where its team's samples are.
struct Thread {
  int team, mine, warp, q, g;

  explicit __device__ __forceinline__ Thread(int thread) {
    const int lane = thread % 32;
    team = thread / kTeam;
    mine = thread % kTeam;
    warp = mine / 32;
    q = lane % 4;
    g = lane / 4;
  }
};

// Chunks that a warp looks at together.
__host__ __device__ constexpr int together(int kept, int most) {
  return kept == 0 ? most : (kept <= 4 ? kept : (kept % 4 == 0 ? 4 : 3));
}

// The weights of a block as its warps multiply them: rows of `length` numbers, in chunks of 64 bytes of which each warp has every eighth.
// kept = 0: in shared memory, as many chunks as there are; else in the registers of the warps, exactly so many each.
template <class T, int rows, int kept>
struct Weights {
  static constexpr int kChunk = 64 / static_cast<int>(sizeof(T)), kTiles = tiles(rows);
  const std::uint8_t* shared = nullptr;
  int stride = 0;
  uint4 fragments[kept > 0 ? kept : 1][kTiles][2];

  __device__ __forceinline__ uint4 get(int chunk, int number, int tile, int half,
                                       const Thread& me) const {
    if constexpr (kept > 0) return fragments[number][tile][half];
    if (tile * 16 + half * 8 >= rows) return make_uint4(0, 0, 0, 0);
    return *reinterpret_cast<const uint4*>(shared + (tile * 16 + half * 8 + me.g) * stride +
                                           chunk * 64 + me.q * 16);
  }
  // `vector(row, k)` has 16 bytes from number k on.
  template <class Vector>
  __device__ __forceinline__ void keep(const Thread& me, const Vector& vector) {
#pragma unroll
    for (int number = 0; number < kept; ++number)
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int row = tile * 16 + half * 8 + me.g,
                    k = (me.warp + number * kWarps) * kChunk + me.q * (kChunk / 4);
          fragments[number][tile][half] = tile * 16 + half * 8 < rows
                                              ? Multiplied<T>::rounded(vector(row, k))
                                              : make_uint4(0, 0, 0, 0);
        }
  }
};

// What a team multiplies its weights with: 16 samples of others.
template <class T>
struct Samples {
  static constexpr int kChunk = 64 / static_cast<int>(sizeof(T));
  const T* from[2];
  int chunks;

  __device__ __forceinline__ Samples(const T* all, int length, int first, const Segment& s,
                                     const Thread& me)
      : chunks(length / kChunk) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const int sample = min(first + 8 * n + me.g, s.end - 1);
      from[n] = all + static_cast<size_t>(sample) * length + me.q * (kChunk / 4);
    }
  }
  __device__ __forceinline__ const T* at(int chunk, int n) const {
    return (n == 0 ? from[0] : from[1]) + min(chunk, chunks - 1) * kChunk;
  }
};

// Once, there yet or not, from chunk `first` on.
template <class T, int count>
__device__ __forceinline__ void look_at(uint4 (&found)[count], const Samples<T>& samples,
                                        int first) {
#pragma unroll
  for (int i = 0; i < count; ++i) found[i] = look(samples.at(first + i / 2 * kWarps, i % 2));
}

// Sums of one warp. Few rows have two of each, so that one product need not wait for the one before; `whole` adds them up.
template <int rows>
struct Sums {
  static constexpr int kEach = tiles(rows) == 1 ? 2 : 1;
  float parts[kEach][tiles(rows)][2][4] = {};

  __device__ __forceinline__ float whole(int m, int n, int i) const {
    return kEach == 1 ? parts[0][m][n][i] : parts[0][m][n][i] + parts[kEach - 1][m][n][i];
  }
};

template <class T, int rows, int kept>
__device__ __forceinline__ void multiply_chunk(Sums<rows>& sums,
                                               const Weights<T, rows, kept>& weights,
                                               const uint4 (&found)[2], int chunk, int number,
                                               const Thread& me) {
#pragma unroll
  for (int m = 0; m < tiles(rows); ++m) {
    const uint4 upper = weights.get(chunk, number, m, 0, me),
                lower = weights.get(chunk, number, m, 1, me);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const uint4 x = Multiplied<T>::rounded(found[n]);
      Multiplied<T>::multiply(sums.parts[0][m][n], upper.x, lower.x, upper.y, lower.y, x.x, x.y);
      Multiplied<T>::multiply(sums.parts[Sums<rows>::kEach - 1][m][n], upper.z, lower.z, upper.w,
                              lower.w, x.z, x.w);
    }
  }
}

// Adds to `sums` the products with chunks first, first + 8, ..., of which `number` is the first among those of the warp.
template <class T, int rows, int kept, int many>
__device__ __forceinline__ void multiply(Sums<rows>& sums, const Weights<T, rows, kept>& weights,
                                         const uint4 (&found)[2 * many], int first, int number,
                                         int chunks, const Thread& me) {
  const auto one = [&](int j) {
    const uint4 both[2] = {found[2 * j], found[2 * j + 1]};
    multiply_chunk<T, rows, kept>(sums, weights, both, first + j * kWarps, number + j, me);
  };
  if (kept > 0 || first + (many - 1) * kWarps < chunks) {
#pragma unroll
    for (int j = 0; j < many; ++j) one(j);
  } else {
#pragma unroll
    for (int j = 0; j < many; ++j) {
      if (first + j * kWarps >= chunks) break;
      one(j);
    }
  }
}

// Of a product: this warp's share of its length. `ahead` has its first numbers where `looked`, there yet or not. false: some did not come.
template <class T, int rows, int kept, int many>
__device__ __forceinline__ bool add_product(Sums<rows>& sums, const Weights<T, rows, kept>& weights,
                                            const Samples<T>& samples, uint4 (&ahead)[2 * many],
                                            bool looked, const Segment& s, const Thread& me,
                                            bool is_there) {
  if constexpr (kept == 0) {
    for (int first = me.warp; first < samples.chunks; first += many * kWarps) {
      const auto where = [&](int i) { return samples.at(first + i / 2 * kWarps, i % 2); };
      if (!read_when_there(ahead, where, false, is_there, s.patience)) return false;
      multiply<T, rows, kept, many>(sums, weights, ahead, first, 0, samples.chunks, me);
    }
  } else {
#pragma unroll
    for (int number = 0; number < kept; number += many) {
      const int first = me.warp + number * kWarps;
      const auto where = [&](int i) { return samples.at(first + i / 2 * kWarps, i % 2); };
      if (!read_when_there(ahead, where, looked, is_there, s.patience)) return false;
      uint4 found[2 * many];
#pragma unroll
      for (int i = 0; i < 2 * many; ++i) found[i] = ahead[i];
      looked = number + many < kept;
      if (looked) look_at(ahead, samples, first + many * kWarps);
      multiply<T, rows, kept, many>(sums, weights, found, first, number, samples.chunks, me);
    }
  }
  return true;
}

template <int rows>
__device__ __forceinline__ void put_parts(float* part, const Sums<rows>& sums, const Thread& me) {
#pragma unroll
  for (int m = 0; m < tiles(rows); ++m)
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (m * 16 + half * 8 >= rows) continue;
        float* const to = part + part_at(m * 16 + half * 8 + me.g, n * 8 + me.q * 2);
        *reinterpret_cast<float2*>(to) =
            make_float2(sums.whole(m, n, 2 * half), sums.whole(m, n, 2 * half + 1));
      }
}

// In the order of the warps.
template <int rows>
__device__ __forceinline__ float all_parts(const float* parts, int row, int sample) {
  float sum = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) sum += parts[w * part_size(rows) + part_at(row, sample)];
  return sum;
}

}  // namespace ebb::gated
