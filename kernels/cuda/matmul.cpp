// out = alpha A B^T through cuBLASLt, float32 accumulation. cuBLASLt is column-major: row-major out (M, N) is
// its N x M matrix, so its first operand is our B, its second our A.
#include <cstring>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/matmul_alpha.h"
#include "kernels/cuda/matmul_choice.h"

namespace q2::cuda {
namespace {

constexpr size_t kWorkspace = size_t(32) << 20;  // what NVIDIA advises for Hopper
constexpr int64_t kBestAlignment = 256;

/// An operand as stored, with its tensor scale on the device or null for 1.
struct Factor {
    Tensor stored;
    bool transposed;
    const float* scale;

    int64_t rows() const { return transposed ? stored.cols : stored.rows; }
    int64_t inner() const { return transposed ? stored.rows : stored.cols; }
};

Factor factor_of(const Operand& o) {
    if (!o.q) return {o.dense, o.transposed, nullptr};
    require(!o.transposed, "matmul: a quantised operand cannot be transposed");
    require(bool(o.q->dense), "matmul: a quantised operand needs its dense form on this device");
    return {o.q->dense, false, o.q->tensor_scale.as<float>()};
}

cudaDataType cuda_type(Dtype dtype) { return dtype == Dtype::f32 ? CUDA_R_32F : CUDA_R_16BF; }

int64_t alignment_of(const Tensor& t) {
    const int64_t address = int64_t(reinterpret_cast<uintptr_t>(t.data)) | kBestAlignment;
    return address & -address;
}

struct Problem {
    Factor a, b;
    Tensor out;

    /// What the choice of an algorithm depends on.
    MatmulChoice::Product key() const {
        return {out.rows,
                out.cols,
                a.inner(),
                a.transposed,
                b.transposed,
                int64_t(a.stored.dtype),
                int64_t(out.dtype),
                alignment_of(a.stored),
                alignment_of(b.stored),
                alignment_of(out)};
    }
    std::string describe() const {
        return concat("(", out.rows, ", ", a.inner(), ") x (", out.cols, ", ", b.inner(), ")^T of ",
                      name_of(a.stored.dtype), " and ", name_of(b.stored.dtype), " into ",
                      name_of(out.dtype));
    }
};

template <class Attribute, class Value>
void set(const LtOperation& operation, Attribute attribute, Value value) {
    check_cublas(cublasLtMatmulDescSetAttribute(operation.get(), attribute, &value, sizeof value),
                 "cublasLtMatmulDescSetAttribute");
}

template <class Attribute, class Value>
void set(const LtPreference& preference, Attribute attribute, Value value) {
    check_cublas(cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof value),
                 "cublasLtMatmulPreferenceSetAttribute");
}

/// alpha and beta stay on the device: an alpha made of tensor scales is never read by the host.
LtOperation make_operation(const Problem& p) {
    cublasLtMatmulDesc_t made;
    check_cublas(cublasLtMatmulDescCreate(&made, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
    LtOperation operation(made);
    set(operation, CUBLASLT_MATMUL_DESC_TRANSA, p.b.transposed ? CUBLAS_OP_N : CUBLAS_OP_T);
    set(operation, CUBLASLT_MATMUL_DESC_TRANSB, p.a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(operation, CUBLASLT_MATMUL_DESC_POINTER_MODE, int32_t(CUBLASLT_POINTER_MODE_DEVICE));
    return operation;
}

LtLayout make_layout(const Tensor& row_major) {
    cublasLtMatrixLayout_t made;
    check_cublas(cublasLtMatrixLayoutCreate(&made, cuda_type(row_major.dtype), row_major.cols, row_major.rows,
                                            row_major.cols),
                 "cublasLtMatrixLayoutCreate");
    return LtLayout(made);
}

/// Split-K sums either not at all or through float32 partial results in a fixed order: the same bits each
/// time.
LtPreference make_preference(const Problem& p) {
    cublasLtMatmulPreference_t made;
    check_cublas(cublasLtMatmulPreferenceCreate(&made), "cublasLtMatmulPreferenceCreate");
    LtPreference preference(made);
    set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t(kWorkspace));
    set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        uint32_t(CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, uint32_t(alignment_of(p.b.stored)));
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, uint32_t(alignment_of(p.a.stored)));
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, uint32_t(alignment_of(p.out)));
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, uint32_t(alignment_of(p.out)));
    return preference;
}

MatmulPlan make_plan(const Problem& p) {
    return {make_operation(p), make_layout(p.b.stored), make_layout(p.a.stored), make_layout(p.out), {}};
}

/// By the earlier choice for this product, by time, or by the heuristic.
cublasLtMatmulAlgo_t choose(const DeviceState& state, const Problem& p, const MatmulCall& call) {
    const std::string what = p.describe();
    const auto earlier = state.chosen.find(p.key());
    if (earlier != state.chosen.end()) {
        cublasLtMatmulAlgo_t algorithm;
        std::memcpy(&algorithm, earlier->second.data(), sizeof algorithm);
        check_choice(state, call.plan, algorithm, kWorkspace, what);
        return algorithm;
    }
    const auto found = candidates(state, call.plan, make_preference(p).get(), what);
    return state.time_matmuls ? fastest(state, call, found, p.out.bytes()) : found.front();
}

void check_problem(const Problem& p, bool accumulate) {
    require(p.a.inner() == p.b.inner() && p.out.rows == p.a.rows() && p.out.cols == p.b.rows(), "matmul: (",
            p.a.rows(), ", ", p.a.inner(), ") x (", p.b.rows(), ", ", p.b.inner(), ")^T into (", p.out.rows,
            ", ", p.out.cols, ")");
    const Dtype type = p.a.stored.dtype;
    require(type == p.b.stored.dtype && (type == Dtype::bf16 || (type == Dtype::f32 && p.out.dtype == type)),
            "matmul: no product of this kind on this device: ", p.describe(),
            "; both operands must be bfloat16, or all three float32");
    require(!accumulate || p.out.dtype == Dtype::f32, "matmul: only float32 accumulates");
}

/// Where the product's alpha lies: 1, one operand's tensor scale, or the product of both, computed in
/// between.
const float* alpha_of(const Problem& p, DeviceWords* words, cudaStream_t stream) {
    if (!p.a.scale || !p.b.scale) return p.a.scale ? p.a.scale : p.b.scale ? p.b.scale : &words->one;
    multiply_scales(stream, &words->alpha, p.a.scale, p.b.scale);
    return &words->alpha;
}

}  // namespace

void matmul(Context& ctx, Tensor out, Operand a, Operand b, bool accumulate) {
    const Problem p{factor_of(a), factor_of(b), out};
    check_problem(p, accumulate);
    DeviceState& state = state_of(ctx);
    std::unique_ptr<MatmulPlan>& plan = state.plans[p.key()];
    const bool fresh = !plan;
    if (fresh) plan = std::make_unique<MatmulPlan>(make_plan(p));
    const MatmulCall call{*plan,
                          p.b.stored.data,
                          p.a.stored.data,
                          alpha_of(p, state.words(), state.stream.get()),
                          accumulate ? &state.words()->one : &state.words()->zero,
                          out.data,
                          Scratch(ctx, "matmul").take<char>(kWorkspace),
                          kWorkspace};
    if (fresh) plan->algorithm = choose(state, p, call);
    check_cublas(run(state, call, plan->algorithm, out.data), "cublasLtMatmul");
}

void time_matmuls(Context& ctx, bool timed) { state_of(ctx).time_matmuls = timed; }

std::vector<MatmulChoice> matmul_choices(Context& ctx) {
    std::vector<MatmulChoice> choices;
    for (const auto& [product, plan] : state_of(ctx).plans) {
        choices.push_back({product, {}});
        static_assert(sizeof choices.back().algorithm == sizeof plan->algorithm);
        std::memcpy(choices.back().algorithm.data(), &plan->algorithm, sizeof plan->algorithm);
    }
    return choices;
}

void choose_matmuls(Context& ctx, const std::vector<MatmulChoice>& choices) {
    DeviceState& state = state_of(ctx);
    state.plans.clear();
    state.chosen.clear();
    for (const MatmulChoice& choice : choices) state.chosen[choice.product] = choice.algorithm;
}

size_t matmul_scratch(int64_t, int64_t, int64_t) { return Scratch::rounded(kWorkspace); }

}  // namespace q2::cuda
