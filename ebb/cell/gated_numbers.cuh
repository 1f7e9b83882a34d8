// SPDX-License-Identifier: Apache-2.0
// What the kernels of gated cells need of a GPU: numbers as tensor cores multiply them, memory that blocks share, teams of warps. A test
// has the same for a CPU, which is why gated_kernels.cuh does not include this file.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace ebb::gated {

// What memory holds until a number is there: NaNs that no arithmetic gives, whose results have the sign bit off.
constexpr std::uint32_t kAbsent = 0xFFFFFFFFU;

constexpr int kTeam = 256;  // threads

struct Place {
  int thread, threads;  // of the block
  int x, y;             // of the block in the grid
};
__device__ __forceinline__ Place place() {
  return {static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x), static_cast<int>(blockIdx.x),
          static_cast<int>(blockIdx.y)};
}
__device__ __forceinline__ std::uint8_t* shared_memory() {
  extern __shared__ __align__(128) std::uint8_t all[];
  return all;
}
__device__ __forceinline__ void sync_block() { __syncthreads(); }
__device__ __forceinline__ void sync_team(int team) {
  asm volatile("bar.sync %0,%1;" ::"r"(team + 1), "n"(kTeam) : "memory");
}
// As sync_team; whether it is so for any thread of the team.
__device__ __forceinline__ bool any_of_team(int team, bool yes) {
  int found;
  asm volatile(
      "{.reg .pred given, any;\n"
      "setp.ne.s32 given,%1,0;\n"
      "bar.red.or.pred any,%2,%3,given;\n"
      "selp.s32 %0,1,0,any;}"
      : "=r"(found)
      : "r"(static_cast<int>(yes)), "r"(team + 1), "n"(kTeam)
      : "memory");
  return found != 0;
}
// Of the lanes of a warp.
__device__ __forceinline__ unsigned bits_of_any(unsigned bits) {
  return __reduce_or_sync(~0U, bits);
}
__device__ __forceinline__ float of_next_lane(float x) { return __shfl_down_sync(~0U, x, 1); }

__device__ __forceinline__ uint4 look(const void* at) {
  uint4 found;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0,%1,%2,%3},[%4];"
               : "=r"(found.x), "=r"(found.y), "=r"(found.z), "=r"(found.w)
               : "l"(at)
               : "memory");
  return found;
}
// Brings it nearer, if it is far.
__device__ __forceinline__ void prefetch(const void* at) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
}
__device__ __forceinline__ bool is_absent(const uint4& found) {
  return found.x == kAbsent || found.y == kAbsent || found.z == kAbsent || found.w == kAbsent;
}
__device__ __forceinline__ float not_a_number() { return __uint_as_float(0x7FFFFFFFU); }
__device__ __forceinline__ std::uint32_t word_of(float x) { return __float_as_uint(x); }
__device__ __forceinline__ float float_of(std::uint32_t word) { return __uint_as_float(word); }
__device__ __forceinline__ void put(void* at, std::uint32_t word) {
  asm volatile("st.relaxed.gpu.global.u32 [%0],%1;" ::"l"(at), "r"(word) : "memory");
}
__device__ __forceinline__ void give_up(int* where) {
  asm volatile("st.relaxed.sys.global.u32 [%0],1;" ::"l"(where) : "memory");
}

template <class T>
struct Multiplied;

template <>
struct Multiplied<__nv_bfloat16> {
  static __device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
  static __device__ __forceinline__ __nv_bfloat16 of_float(float x) {
    return __float2bfloat16_rn(x);
  }
  static __device__ __forceinline__ std::uint32_t pair(float first, float second) {
    std::uint32_t word;
    asm("cvt.rn.bf16x2.f32 %0,%1,%2;" : "=r"(word) : "f"(second), "f"(first));
    return word;
  }
  template <class X>
  static __device__ __forceinline__ X rounded(X x) {
    return x;
  }
  static __device__ __forceinline__ void multiply(float (&d)[4], std::uint32_t a0, std::uint32_t a1,
                                                  std::uint32_t a2, std::uint32_t a3,
                                                  std::uint32_t b0, std::uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
};

template <>
struct Multiplied<__half> {
  static __device__ __forceinline__ float to_float(__half x) { return __half2float(x); }
  static __device__ __forceinline__ __half of_float(float x) { return __float2half_rn(x); }
  static __device__ __forceinline__ std::uint32_t pair(float first, float second) {
    std::uint32_t word;
    asm("cvt.rn.f16x2.f32 %0,%1,%2;" : "=r"(word) : "f"(second), "f"(first));
    return word;
  }
  template <class X>
  static __device__ __forceinline__ X rounded(X x) {
    return x;
  }
  static __device__ __forceinline__ void multiply(float (&d)[4], std::uint32_t a0, std::uint32_t a1,
                                                  std::uint32_t a2, std::uint32_t a3,
                                                  std::uint32_t b0, std::uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
};

// Kept as they are, rounded to 10 bits where they are multiplied.
template <>
struct Multiplied<float> {
  static __device__ __forceinline__ float to_float(float x) { return x; }
  static __device__ __forceinline__ float of_float(float x) { return x; }
  static __device__ __forceinline__ std::uint32_t rounded(std::uint32_t x) {
    asm("cvt.rna.tf32.f32 %0,%0;" : "+r"(x));
    return x;
  }
  static __device__ __forceinline__ float rounded(float x) {
    return __uint_as_float(rounded(__float_as_uint(x)));
  }
  static __device__ __forceinline__ uint4 rounded(uint4 x) {
    return make_uint4(rounded(x.x), rounded(x.y), rounded(x.z), rounded(x.w));
  }
  static __device__ __forceinline__ void multiply(float (&d)[4], std::uint32_t a0, std::uint32_t a1,
                                                  std::uint32_t a2, std::uint32_t a3,
                                                  std::uint32_t b0, std::uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
        "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
};

}  // namespace ebb::gated
