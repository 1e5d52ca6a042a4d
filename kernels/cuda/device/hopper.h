// Hopper's own instructions, one function each: barriers in shared memory, the bulk tensor copy (TMA) and
// warpgroup products (wgmma). PTX ISA 9.0, sections 9.7.13 (mbarrier), 9.7.9.27 (bulk copies), 9.7.15
// (wgmma).
//
// They exist on sm_90a alone. Compiled for another architecture they trap, and code that uses them is chosen
// only where kHopperCode was seen to be true on the device.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace q2::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define Q2_HOPPER(...) asm volatile(__VA_ARGS__)
constexpr bool kHopperCode = true;
#else
#define Q2_HOPPER(...) __trap()
constexpr bool kHopperCode = false;
#endif

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
    return uint32_t(__cvta_generic_to_shared(pointer));
}

// ---- Barriers ----

/// A barrier whose phase ends when `arrivals` threads have arrived and all announced bytes are there.
struct Barrier {
    uint64_t word;

    __device__ __forceinline__ void init([[maybe_unused]] uint32_t arrivals) {
        Q2_HOPPER("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(this)), "r"(arrivals)
                  : "memory");
    }
    __device__ __forceinline__ void arrive() {
        Q2_HOPPER("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(this)) : "memory");
    }
    __device__ __forceinline__ void arrive_and_expect([[maybe_unused]] uint32_t bytes) {
        Q2_HOPPER("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(this)),
                  "r"(bytes)
                  : "memory");
    }
    /// Until the phase of this parity has ended; a fresh barrier is in phase 0, and "phase 1 before" has
    /// ended.
    __device__ __forceinline__ void wait([[maybe_unused]] uint32_t parity) {
        Q2_HOPPER(
            "{\n"
            ".reg .pred done;\n"
            "again:\n"
            "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
            "@!done bra again;\n"
            "}\n" ::"r"(shared_address(this)),
            "r"(parity)
            : "memory");
    }
};

/// Makes the barriers' initialisation visible to the copy engine.
__device__ __forceinline__ void fence_barrier_init() {
    Q2_HOPPER("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/// The 128 threads of a warpgroup wait for one another; id 0 is __syncthreads().
__device__ __forceinline__ void sync_warpgroup(int id) {
    asm volatile("bar.sync %0, 128;" ::"r"(id) : "memory");
}

// ---- Bulk copies into shared memory, which count their bytes on a barrier ----

__device__ __forceinline__ void copy_box([[maybe_unused]] void* to, [[maybe_unused]] const CUtensorMap* map,
                                         [[maybe_unused]] Barrier& barrier, [[maybe_unused]] int col,
                                         [[maybe_unused]] int row, [[maybe_unused]] int batch) {
    Q2_HOPPER(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, "
        "%5}], [%2];" ::"r"(shared_address(to)),
        "l"(map), "r"(shared_address(&barrier)), "r"(col), "r"(row), "r"(batch)
        : "memory");
}

/// `bytes`, both addresses: multiples of 16.
__device__ __forceinline__ void copy_bytes([[maybe_unused]] void* to, [[maybe_unused]] const void* from,
                                           [[maybe_unused]] Barrier& barrier,
                                           [[maybe_unused]] uint32_t bytes) {
    Q2_HOPPER("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                  shared_address(to)),
              "l"(from), "r"(bytes), "r"(shared_address(&barrier))
              : "memory");
}

// ---- Registers of a warpgroup ----

template <int registers>
__device__ __forceinline__ void give_registers() {
    Q2_HOPPER("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers>
__device__ __forceinline__ void take_registers() {
    Q2_HOPPER("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

// ---- Warpgroup products ----

// A tile in shared memory is panels of 64 bfloat16 columns: 128 bytes a row, swizzled by the copy engine,
// 1024-byte aligned.

/// Descriptor of a tile whose rows are the product's M or N and whose columns are K: 8-row groups 1024 bytes
/// apart.
__device__ __forceinline__ uint64_t describe_rows(const void* tile) {
    const uint64_t address = (shared_address(tile) & 0x3ffffu) >> 4;
    return address | uint64_t(1) << 16 | uint64_t(1024 >> 4) << 32 | uint64_t(1) << 62;
}

/// Descriptor of a tile whose rows are K and whose columns are N (B transposed): 8-row groups 1024 bytes
/// apart, panels `panel_bytes` apart.
__device__ __forceinline__ uint64_t describe_columns(const void* tile, uint32_t panel_bytes) {
    const uint64_t address = (shared_address(tile) & 0x3ffffu) >> 4;
    return address | uint64_t(panel_bytes >> 4) << 16 | uint64_t(1024 >> 4) << 32 | uint64_t(1) << 62;
}

__device__ __forceinline__ void begin_products() { Q2_HOPPER("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void commit_products() {
    Q2_HOPPER("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Until at most `pending` committed groups are unfinished.
template <int pending>
__device__ __forceinline__ void wait_products() {
    Q2_HOPPER("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}
/// Keeps the compiler from moving uses of an accumulator over a wait.
template <int n>
__device__ __forceinline__ void pin(float (&x)[n]) {
#pragma unroll
    for (int i = 0; i < n; ++i) asm volatile("" : "+f"(x[i])::"memory");
}

#define Q2_D8(i)                                                                                \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
        "+f"(d[i + 6]), "+f"(d[i + 7])
#define Q2_D32 Q2_D8(0), Q2_D8(8), Q2_D8(16), Q2_D8(24)
#define Q2_D64 Q2_D32, Q2_D8(32), Q2_D8(40), Q2_D8(48), Q2_D8(56)
#define Q2_REGS32                                                                                          \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, " \
    "%22, %23, "                                                                                           \
    "%24, %25, %26, %27, %28, %29, %30, %31"
#define Q2_REGS64                                                                                            \
    Q2_REGS32                                                                                                \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, " \
    "%52, "                                                                                                  \
    "%53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

/// d (64, 64) = (accumulate ? d : 0) + A B^T over 16 of K, both from shared memory with K along their rows.
__device__ __forceinline__ void multiply16([[maybe_unused]] float (&d)[32], [[maybe_unused]] uint64_t a,
                                           [[maybe_unused]] uint64_t b, [[maybe_unused]] bool accumulate) {
    Q2_HOPPER(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" Q2_REGS32 "}, %32, %33, p, 1, 1, 0, 0;\n}\n"
        : Q2_D32
        : "l"(a), "l"(b), "r"(int(accumulate)));
}

/// The same, d (64, 128).
__device__ __forceinline__ void multiply16([[maybe_unused]] float (&d)[64], [[maybe_unused]] uint64_t a,
                                           [[maybe_unused]] uint64_t b, [[maybe_unused]] bool accumulate) {
    Q2_HOPPER(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" Q2_REGS64 "}, %64, %65, p, 1, 1, 0, 0;\n}\n"
        : Q2_D64
        : "l"(a), "l"(b), "r"(int(accumulate)));
}

/// d (64, 64) += A B over 16 of K: A in registers (two bfloat16 each), B in shared memory with K down its
/// columns.
__device__ __forceinline__ void multiply16_registers([[maybe_unused]] float (&d)[32],
                                                     [[maybe_unused]] const uint32_t* a,
                                                     [[maybe_unused]] uint64_t b) {
    Q2_HOPPER(
        "{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" Q2_REGS32
        "}, {%32, %33, %34, %35}, %36, p, 1, 1, 1;\n}\n"
        : Q2_D32
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

/// The same, d (64, 128).
__device__ __forceinline__ void multiply16_registers([[maybe_unused]] float (&d)[64],
                                                     [[maybe_unused]] const uint32_t* a,
                                                     [[maybe_unused]] uint64_t b) {
    Q2_HOPPER(
        "{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" Q2_REGS64
        "}, {%64, %65, %66, %67}, %68, p, 1, 1, 1;\n}\n"
        : Q2_D64
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

#undef Q2_D8
#undef Q2_D32
#undef Q2_D64
#undef Q2_REGS32
#undef Q2_REGS64

}  // namespace q2::cuda
