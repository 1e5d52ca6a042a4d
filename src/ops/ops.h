// THE index of operations. A backend is a filled table; the context holds one, chosen once at start.
//
// A slot is the widest fused boundary that the fast backend wants, stated as mathematics with all its
// outputs; an output that is not wanted is null. Tensors are row-major matrices; B sequences of T tokens make
// N = B*T rows. "act" is the activations' type (float32 or bfloat16), "res" the residual stream's (the same
// choice, apart). Every sum has a fixed order, so the same inputs give the same bits on the same backend.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "ops/quant_spec.h"
#include "ops/step_state.h"
#include "tensor/context.h"
#include "tensor/tensor.h"

namespace q2 {

/// max|x| as the bits of a non-negative float, so that NaN wins and an integer maximum finds it in any order.
struct Amax {
    uint32_t bits;
};

/// An NVFP4 operand, (rows, inner) with inner the dimension its GEMM contracts.
/// value = e2m1(code) * (e4m3(scale) * tensor_scale); rows past the source's inner size are zero padding.
struct Quantized {
    int64_t rows = 0, inner = 0;
    Tensor codes;         ///< (rows, inner/2) u8, the even element in the low nibble; or none
    Tensor scales;        ///< (rows, inner/16) u8, or (rows/16, inner/16) for 16x16 tiles; or none
    Tensor tensor_scale;  ///< (1, 1) f32
    Tensor dense;         ///< (rows, inner) of Ops::dense_dtype: e2m1 * e4m3, exact; emulation only, or none

    Grid grid() const { return scales.rows * kBlock == rows && rows > 0 ? Grid::tile : Grid::block; }
};

/// A GEMM's operand, logically (rows, inner): a plain matrix, or a quantised one.
struct Operand {
    Tensor dense;                  ///< as stored: (rows, inner), or (inner, rows) if transposed
    const Quantized* q = nullptr;  ///< wins over `dense`; `transposed` then says that q is (inner, rows)
    bool transposed = false;
};

/// Queries and keys share heads in groups of heads / kv_heads (GQA).
struct AttentionShape {
    int64_t batch = 0, sequence = 0;
    int64_t heads = 0, kv_heads = 0, head_size = 0;

    constexpr int64_t tokens() const { return batch * sequence; }
    constexpr int64_t qkv_width() const { return (heads + 2 * kv_heads) * head_size; }
    constexpr int64_t out_width() const { return heads * head_size; }
};

enum class Direction { forward, backward };

/// Bytes of a device's memory.
struct MemoryUse {
    size_t held = 0;   ///< now; CPU: resident, by this process; GPU: by all processes
    size_t peak = 0;   ///< CPU: the largest `held` of this process so far; GPU: as `held`, which only grows
    size_t total = 0;  ///< of the device; CPU: of the machine, or the container's limit
};

/// Which algorithm of its library a backend took for a product. Both parts are the backend's own; the same
/// choice gives the same bits.
struct MatmulChoice {
    using Product = std::array<int64_t, 10>;
    using Algorithm = std::array<uint64_t, 8>;
    Product product{};
    Algorithm algorithm{};
};

struct AdamWSettings {
    float beta1 = 0.9f, beta2 = 0.95f, eps = 1e-8f;
};

struct Ops {
    const char* name;
    Dtype dense_dtype;  ///< of Quantized::dense: what this backend's products read

    // ---- Device ----
    void (*open)(Context&, int device);  ///< fills ctx.backend; throws Exit::device with the reason
    void (*close)(Context&);
    std::string (*describe)(Context&);  ///< one line: the device's name, and its memory if it has its own
    MemoryUse (*memory)(Context&);

    // ---- Memory. Transfers are ordered with the ops around them; upload may return before it is done. ----
    void* (*allocate)(Context&, size_t bytes);
    void (*release)(Context&, void*);
    /// Memory of the host; page-locked where downloads into it are faster for it.
    void* (*allocate_host)(Context&, size_t bytes);
    void (*release_host)(Context&, void*);
    void (*upload)(Context&, void* device, const void* host, size_t bytes);
    void (*download)(Context&, void* host, const void* device, size_t bytes);  ///< done on return
    void (*copy)(Context&, void* to, const void* from, size_t bytes);          ///< within the device
    void (*zero)(Context&, void* device, size_t bytes);
    void (*synchronize)(Context&);

    // ---- Embedding: out[n] = table[ids[n]] ----
    /// out (N, C) res; table (V, C) f32; ids (N, 1) i32, each in 0..V-1.
    void (*embedding_forward)(Context&, Tensor out, Tensor table, Tensor ids);
    /// dtable (V, C) f32 += the rows of dout (N, C) res, by ids.
    void (*embedding_backward)(Context&, Tensor dtable, Tensor dout, Tensor ids);
    size_t (*embedding_backward_scratch)(int64_t tokens, int64_t vocab);

    // ---- Residual add and RMSNorm: s = residual + branch; out = s * rstd * weight, rstd = 1/sqrt(mean(s^2)
    // + eps) ---
    /// out (N, C) act; rstd (N, 1) f32; sum (N, C) res, may be `residual` itself; residual (N, C) res;
    /// branch (N, C) act or none; weight (1, C) f32; amax of out, or null.
    void (*residual_rmsnorm_forward)(Context&, Tensor out, Tensor rstd, Tensor sum, Tensor residual,
                                     Tensor branch, Tensor weight, float eps, Amax* amax);
    /// dsum (N, C) res = (accumulate ? dsum : 0) + the norm's gradient; dbranch (N, C) act or none: a copy of
    /// dsum, the branch's gradient; dweight (1, C) f32 +=; dout (N, C) act; sum, rstd and weight as in the
    /// forward.
    void (*residual_rmsnorm_backward)(Context&, Tensor dsum, bool accumulate, Tensor dbranch, Tensor dweight,
                                      Tensor dout, Tensor sum, Tensor rstd, Tensor weight);
    size_t (*residual_rmsnorm_backward_scratch)(int64_t tokens, int64_t width);

    // ---- Attention ----
    /// Rotary embedding (rotate-half) of the Q and K parts in place; backward turns the other way.
    /// qkv (N, (heads + 2 kv_heads) D) act, Q then K then V; table (T, D) f32: D/2 cosines, then D/2 sines.
    void (*rope)(Context&, Tensor qkv, Tensor table, AttentionShape, Direction);
    /// Causal softmax(Q K^T / sqrt(D)) V. out (N, heads D) act; lse (heads B, T) f32: log sum exp of a row's
    /// scores, row b*heads + h; amax of out, or null.
    void (*attention_forward)(Context&, Tensor out, Tensor lse, Tensor qkv, AttentionShape, Amax* amax);
    /// dqkv (N, qkv width) act, all of it written; dout, out (N, heads D) act.
    void (*attention_backward)(Context&, Tensor dqkv, Tensor dout, Tensor out, Tensor lse, Tensor qkv,
                               AttentionShape);
    size_t (*attention_scratch)(AttentionShape);  ///< of either direction

    // ---- SwiGLU: out = silu(gate) * up ----
    /// out (N, M) act; gate_up (N, 2M) act, gate first; amax of out, or null.
    void (*swiglu_forward)(Context&, Tensor out, Tensor gate_up, Amax* amax);
    /// dgate_up (N, 2M) act, may be `gate_up` itself; dout (N, M) act.
    void (*swiglu_backward)(Context&, Tensor dgate_up, Tensor dout, Tensor gate_up);

    // ---- Linear layers ----
    /// out (rows of a, rows of b) = (accumulate ? out : 0) + alpha A B^T; act or f32 out; alpha is the
    /// product of the quantised operands' tensor scales, read on the device. A quantised operand must not be
    /// transposed here.
    void (*matmul)(Context&, Tensor out, Operand a, Operand b, bool accumulate);
    size_t (*matmul_scratch)(int64_t rows, int64_t cols, int64_t inner);
    /// Whether a product's first call picks its algorithm by time; at first, by the library's heuristic.
    void (*time_matmuls)(Context&, bool timed);
    std::vector<MatmulChoice> (*matmul_choices)(Context&);  ///< of all products so far
    /// Forgets the choices so far; products among `choices` take the algorithm given, on their first call.
    void (*choose_matmuls)(Context&, const std::vector<MatmulChoice>& choices);
    /// Quantises `source` (rows, inner) into the parts of `out` that are not null. The source may be stored
    /// transposed, may be codes (their `value`), and is padded with zeros to out.inner; it is rotated first.
    /// A kept operand becomes its dense form with tensor scale 1, or, from unrotated codes, exactly their
    /// e2m1 * e4m3. amax: of the unrotated source, or null to compute it; it is ignored where a rotation
    /// changes it.
    void (*quantize)(Context&, const Quantized& out, Operand source, const Amax* amax, const QuantSpec&,
                     const Rotation&, const Address&);
    /// Both orientations of an output gradient e (N, out) act from one read a pass: for_dgrad (N, out) and
    /// for_wgrad (out, N padded); either may be null. Operand 0 of both GEMMs.
    void (*quantize_gradient)(Context&, const Quantized* for_dgrad, const Quantized* for_wgrad, Tensor e,
                              const GemmSpec& dgrad, const GemmSpec& wgrad, const Address& dgrad_address,
                              const Address& wgrad_address);
    size_t (*quantize_scratch)(int64_t rows, int64_t inner);  ///< of either quantising slot, padded sizes
    /// out = in in out's type: float32 or bfloat16 to bfloat16 or float32.
    void (*cast)(Context&, Tensor out, Tensor in);

    // ---- Loss ----
    /// losses (N, 1) f32 = log sum exp(logits) - logits[target]; a negative target counts nothing. With
    /// want_gradient, logits (N, V) act become gradient_scale * (softmax - onehot).
    void (*cross_entropy)(Context&, Tensor losses, Tensor logits, Tensor targets, float gradient_scale,
                          bool want_gradient);
    /// *total += scale * sum(losses).
    void (*add_loss)(Context&, float* total, Tensor losses, float scale);

    // ---- Optimiser ----
    /// state.grad_norm = |grads|_2, clip_factor (clip 0: always 1), and skip = skip_reason(state).
    void (*gradient_norm)(Context&, StepState* state, Tensor grads, float clip);
    size_t (*gradient_norm_scratch)(int64_t size);
    /// Decay first (p -= lr*decay*p), then Adam with bias correction and eps outside the root, of grads *
    /// clip_factor. Nothing, amax included, changes if state.skip is set. p, m, v, g of one size, f32; amax
    /// of the new p, or null.
    void (*adamw)(Context&, Tensor p, Tensor m, Tensor v, Tensor g, const AdamWSettings&, float decay,
                  const StepState* state, Amax* amax);

    // ---- Looking inside ----
    /// How many elements of x are NaN or infinite; done on return.
    int64_t (*count_non_finite)(Context&, Tensor x);
};

/// The tables this binary holds. cuda_ops is null where it was built without the CUDA Toolkit.
const Ops* cpu_ops();
const Ops* cuda_ops();

}  // namespace q2
