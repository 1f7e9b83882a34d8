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
__host__ __device__ constexpr int together(int kept) {
  return kept == 0 ? 4 : (kept <= 3 ? kept : (kept % 4 == 0 ? 4 : 3));
}

// Tiles of weights, of that many rows, that lie in the registers of a team whose warps have `kept` chunks each: 128 registers have
// room for them. All others lie in shared memory.
__host__ __device__ constexpr int tiles_held(int rows, int kept) {
  if (kept == 0) return 0;
  return 128 / (8 * kept) < tiles(rows) ? 128 / (8 * kept) : tiles(rows);
}

// The weights of a block as its warps multiply them: rows of `length` numbers, in chunks of 64 bytes of which each warp has every eighth.
// kept = 0: as many chunks as there are, else exactly that many for each warp.
template <class T, int rows, int kept>
struct Weights {
  static constexpr int kChunk = 64 / static_cast<int>(sizeof(T)), kTiles = tiles(rows),
                       kHeld = tiles_held(rows, kept);
  const std::uint8_t* shared = nullptr;
  int stride = 0;
  uint4 fragments[kept > 0 ? kept : 1][kHeld > 0 ? kHeld : 1][2];

  __device__ __forceinline__ uint4 get(int chunk, int number, int tile, int half,
                                       const Thread& me) const {
    if constexpr (kHeld > 0) {
      if (tile < kHeld) return fragments[number][tile][half];
    }
    if (tile * 16 + half * 8 >= rows) return make_uint4(0, 0, 0, 0);
    return lying(chunk, (tile - kHeld) * 16 + half * 8, me);
  }
  // Takes a tile that lies first in shared memory into registers.
  __device__ __forceinline__ void hold(int tile, const Thread& me) {
#pragma unroll
    for (int number = 0; number < kept; ++number)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        fragments[number][tile][half] = tile * 16 + half * 8 < rows
                                            ? lying(me.warp + number * kWarps, half * 8, me)
                                            : make_uint4(0, 0, 0, 0);
      }
  }
  __device__ __forceinline__ uint4 lying(int chunk, int row, const Thread& me) const {
    return *reinterpret_cast<const uint4*>(shared + (row + me.g) * stride + chunk * 64 + me.q * 16);
  }
};

// Rows of weights that need room in shared memory: those that stay there, or the tile that is on its way to the registers.
__host__ __device__ constexpr int rows_shared(int rows, int kept) {
  const int stay = rows - tiles_held(rows, kept) * 16;
  return stay > 0 ? stay : (rows < 16 ? rows : 16);
}

// Puts a block's weights where they belong. `put(first, rows, to)` writes rows from `first` on to shared memory.
template <class T, int rows, int kept, class Put>
__device__ __forceinline__ void take_weights(Weights<T, rows, kept>& weights, std::uint8_t* shared,
                                             int length, const Thread& me, const Put& put) {
  constexpr int kHeld = tiles_held(rows, kept), kTile = rows < 16 ? rows : 16;
  weights.shared = shared;
  weights.stride = row_bytes(length, sizeof(T));
#pragma unroll
  for (int tile = 0; tile < kHeld; ++tile) {
    put(tile * 16, kTile, shared);
    sync_block();
    weights.hold(tile, me);
    sync_block();
  }
  if (kHeld * 16 < rows) put(kHeld * 16, rows - kHeld * 16, shared);
}

// Rows of the weights [G*H,H] that belong to the units of a block from u0 on, gate by gate; for take_weights.
template <class T, int units>
struct RowsOfUnits {
  const T* weights;
  int hidden, u0;
  Place here;

  __device__ __forceinline__ void operator()(int first, int count, std::uint8_t* to) const {
    constexpr int kVector = 16 / static_cast<int>(sizeof(T));
    const int vectors = hidden / kVector, stride = row_bytes(hidden, sizeof(T));
    for (int i = here.thread; i < count * vectors; i += here.threads) {
      const int row = first + i / vectors, k = i % vectors;
      const T* const from =
          weights + (static_cast<size_t>(row / units) * hidden + u0 + row % units) * hidden;
      *reinterpret_cast<uint4*>(to + i / vectors * stride + k * 16) =
          Multiplied<T>::rounded(reinterpret_cast<const uint4*>(from)[k]);
    }
  }
};

// Their columns, as rows: `width` numbers each, one for every row of the weights.
template <class T, int units>
struct ColumnsOfUnits {
  const T* weights;
  int hidden, width, u0;
  Place here;

  __device__ __forceinline__ void operator()(int from, int count, std::uint8_t* to) const {
    constexpr int kUnits = units < 16 ? units : 16,
                  kVectors = kUnits * static_cast<int>(sizeof(T)) / 16;
    const int stride = row_bytes(width, sizeof(T));
    for (int unit = 0; unit < count; unit += kUnits) {
      for (int i = here.thread; i < width; i += here.threads) {
        union {
          uint4 vectors[kVectors];
          T numbers[kUnits];
        } found;
        const T* const row = weights + static_cast<size_t>(i) * hidden + u0 + from + unit;
#pragma unroll
        for (int k = 0; k < kVectors; ++k)
          found.vectors[k] = reinterpret_cast<const uint4*>(row)[k];
#pragma unroll
        for (int k = 0; k < kUnits; ++k) {
          *reinterpret_cast<T*>(to + (unit + k) * stride + i * sizeof(T)) =
              Multiplied<T>::rounded(found.numbers[k]);
        }
      }
    }
  }
};

// What a team multiplies its weights with: 16 samples of others.
// clamped: there may be fewer chunks than are looked at.
template <class T, bool clamped>
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
    return (n == 0 ? from[0] : from[1]) + (clamped ? min(chunk, chunks - 1) : chunk) * kChunk;
  }
};

// Once, there yet or not, from chunk `first` on.
template <class T, bool clamped, int count>
__device__ __forceinline__ void look_at(uint4 (&found)[count], const Samples<T, clamped>& samples,
                                        int first) {
#pragma unroll
  for (int i = 0; i < count; ++i) found[i] = look(samples.at(first + i / 2 * kWarps, i % 2));
}

// Sums of one warp over some tiles. A single tile has two of each, so that one product need not wait for the one before; `whole` adds
// them up.
template <int count>
struct Sums {
  static constexpr int kEach = count == 1 ? 2 : 1;
  float parts[kEach][count][2][4] = {};

  __device__ __forceinline__ float whole(int m, int n, int i) const {
    return kEach == 1 ? parts[0][m][n][i] : parts[0][m][n][i] + parts[kEach - 1][m][n][i];
  }
};

// Of tiles from `from` on.
template <class T, int rows, int kept, int count>
__device__ __forceinline__ void multiply_chunk(Sums<count>& sums,
                                               const Weights<T, rows, kept>& weights, int from,
                                               const uint4 (&found)[2], int chunk, int number,
                                               const Thread& me) {
#pragma unroll
  for (int m = 0; m < count; ++m) {
    const uint4 upper = weights.get(chunk, number, from + m, 0, me),
                lower = weights.get(chunk, number, from + m, 1, me);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const uint4 x = Multiplied<T>::rounded(found[n]);
      Multiplied<T>::multiply(sums.parts[0][m][n], upper.x, lower.x, upper.y, lower.y, x.x, x.y);
      Multiplied<T>::multiply(sums.parts[Sums<count>::kEach - 1][m][n], upper.z, lower.z, upper.w,
                              lower.w, x.z, x.w);
    }
  }
}

// Adds to `sums` the products with chunks first, first + 8, ..., of which `number` is the first among those of the warp.
template <class T, int rows, int kept, int count, int many>
__device__ __forceinline__ void multiply(Sums<count>& sums, const Weights<T, rows, kept>& weights,
                                         int from, const uint4 (&found)[many], int first,
                                         int number, int chunks, const Thread& me) {
  const auto one = [&](int j) {
    const uint4 both[2] = {found[2 * j], found[2 * j + 1]};
    multiply_chunk(sums, weights, from, both, first + j * kWarps, number + j, me);
  };
  if (kept > 0 || first + (many / 2 - 1) * kWarps < chunks) {
#pragma unroll
    for (int j = 0; j < many / 2; ++j) one(j);
  } else {
#pragma unroll
    for (int j = 0; j < many / 2; ++j) {
      if (first + j * kWarps >= chunks) break;
      one(j);
    }
  }
}

template <int count>
__device__ __forceinline__ void put_sums(float* part, const Sums<count>& sums, int from, int rows,
                                         const Thread& me) {
#pragma unroll
  for (int m = 0; m < count; ++m)
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = (from + m) * 16 + half * 8;
        if (row >= rows) continue;
        float* const to = part + part_at(row + me.g, n * 8 + me.q * 2);
        *reinterpret_cast<float2*>(to) =
            make_float2(sums.whole(m, n, 2 * half), sums.whole(m, n, 2 * half + 1));
      }
}

// Of a product: this warp's share of its length, written to its part once `ready` returns. `ahead` has its first numbers where `looked`,
// there yet or not. false: some did not come.
template <class T, int rows, int kept, int many, class Ready>
__device__ __forceinline__ bool put_product(float* part, const Weights<T, rows, kept>& weights,
                                            const Samples<T, kept == 0>& samples,
                                            uint4 (&ahead)[many], bool looked, const Segment& s,
                                            const Thread& me, bool is_there, const Ready& ready) {
  constexpr int kTiles = tiles(rows);
  if constexpr (kept > 0 && 2 * kept == many && kTiles > 4) {
    // All numbers are there at once: half of the tiles at a time, since there are not registers for the sums of all.
    const auto where = [&](int i) { return samples.at(me.warp + i / 2 * kWarps, i % 2); };
    const bool came = read_when_there(ahead, where, looked, is_there, s.patience);
    constexpr int kHalf = kTiles / 2;
    Sums<kHalf> upper;
    multiply(upper, weights, 0, ahead, me.warp, 0, samples.chunks, me);
    ready();
    put_sums(part, upper, 0, rows, me);
    Sums<kTiles - kHalf> lower;
    multiply(lower, weights, kHalf, ahead, me.warp, 0, samples.chunks, me);
    put_sums(part, lower, kHalf, rows, me);
    return came;
  } else {
    Sums<kTiles> sums;
    bool came = true;
    if constexpr (kept == 0) {
      for (int first = me.warp; came && first < samples.chunks; first += many / 2 * kWarps) {
        const auto where = [&](int i) { return samples.at(first + i / 2 * kWarps, i % 2); };
        came = read_when_there(ahead, where, false, is_there, s.patience);
        multiply(sums, weights, 0, ahead, first, 0, samples.chunks, me);
      }
    } else {
#pragma unroll
      for (int number = 0; number < kept; number += many / 2) {
        const int first = me.warp + number * kWarps;
        const auto where = [&](int i) { return samples.at(first + i / 2 * kWarps, i % 2); };
        if (came) came = read_when_there(ahead, where, looked, is_there, s.patience);
        uint4 found[many];
#pragma unroll
        for (int i = 0; i < many; ++i) found[i] = ahead[i];
        looked = number + many / 2 < kept;
        if (looked) look_at(ahead, samples, first + many / 2 * kWarps);
        multiply(sums, weights, 0, found, first, number, samples.chunks, me);
      }
    }
    ready();
    put_sums(part, sums, 0, rows, me);
    return came;
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
