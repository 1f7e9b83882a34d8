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
__host__ __device__ constexpr int part_size(int rows) { return tiles(rows) * 16 * (kSlice + 1); }

// Hands a number to other blocks. All lanes of a warp call it, even ones and the next with neighbouring places: words are written whole.
template <class T>
__device__ __forceinline__ void tell(T* at, float x, bool real, int thread) {
  if constexpr (sizeof(T) == 4) {
    if (real) put(at, word_of(x));
  } else {
    const float next = of_next_lane(x);
    if (real && thread % 2 == 0) put(at, Multiplied<T>::pair(x, next));
  }
}

// Reads vectors that other blocks write; `looked`: they have been looked at once. false: they did not come in time.
template <int count, class Where>
__device__ __forceinline__ bool read_when_there(uint4 (&found)[count], const Where& where,
                                                bool looked, bool is_there, long long patience) {
  for (long long looks = 0; looks <= patience; ++looks) {
    if (!looked) {
#pragma unroll
      for (int i = 0; i < count; ++i) found[i] = look(where(i));
    }
    looked = false;
    if (is_there) return true;
    bool absent = false;
#pragma unroll
    for (int i = 0; i < count; ++i) absent |= is_absent(found[i]);
    if (!any(absent)) return true;
    // One of them, so that waiting leaves the memory to those who work.
    do {
      found[count - 1] = look(where(count - 1));
    } while (any(is_absent(found[count - 1])) && ++looks <= patience);
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
    return from[n] + min(chunk, chunks - 1) * kChunk;
  }
};

// Once, there yet or not, from chunk `first` on.
template <class T, int count>
__device__ __forceinline__ void look_at(uint4 (&found)[count], const Samples<T>& samples,
                                        int first) {
#pragma unroll
  for (int i = 0; i < count; ++i) found[i] = look(samples.at(first + i / 2 * kWarps, i % 2));
}

// Adds to `sums` the products with chunks first, first + 8, ..., of which `number` is the first among those of the warp.
template <class T, int rows, int kept, int many>
__device__ __forceinline__ void multiply(float (&sums)[tiles(rows)][2][4],
                                         const Weights<T, rows, kept>& weights,
                                         uint4 (&found)[2 * many], int first, int number,
                                         int chunks, const Thread& me) {
#pragma unroll
  for (int j = 0; j < many; ++j) {
    const int chunk = first + j * kWarps;
    if (kept == 0 && chunk >= chunks) break;
#pragma unroll
    for (int n = 0; n < 2; ++n) found[2 * j + n] = Multiplied<T>::rounded(found[2 * j + n]);
#pragma unroll
    for (int m = 0; m < tiles(rows); ++m) {
      const uint4 upper = weights.get(chunk, number + j, m, 0, me),
                  lower = weights.get(chunk, number + j, m, 1, me);
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const uint4 x = found[2 * j + n];
        Multiplied<T>::multiply(sums[m][n], upper.x, lower.x, upper.y, lower.y, x.x, x.y);
        Multiplied<T>::multiply(sums[m][n], upper.z, lower.z, upper.w, lower.w, x.z, x.w);
      }
    }
  }
}

// Of a product: this warp's share of its length. `ahead` has its first numbers where `looked`, there yet or not. false: some did not come.
template <class T, int rows, int kept, int many>
__device__ __forceinline__ bool add_product(float (&sums)[tiles(rows)][2][4],
                                            const Weights<T, rows, kept>& weights,
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
__device__ __forceinline__ void put_parts(float* part, const float (&sums)[tiles(rows)][2][4],
                                          const Thread& me) {
#pragma unroll
  for (int m = 0; m < tiles(rows); ++m)
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = m * 16 + me.g + i / 2 * 8;
        if (m * 16 + i / 2 * 8 < rows)
          part[row * (kSlice + 1) + n * 8 + me.q * 2 + i % 2] = sums[m][n][i];
      }
}

// In the order of the warps.
template <int rows>
__device__ __forceinline__ float all_parts(const float* parts, int row, int sample) {
  float sum = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) sum += parts[w * part_size(rows) + row * (kSlice + 1) + sample];
  return sum;
}

}  // namespace ebb::gated
