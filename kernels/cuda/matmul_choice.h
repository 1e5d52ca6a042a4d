// Which of cuBLASLt's algorithms computes a product: its own first choice, the fastest of its choices as
// timed here, or the one that an earlier process took.
#pragma once

#include "kernels/cuda/matmul_plan.h"

namespace q2::cuda {

/// One call of a product, ready but for the algorithm.
struct MatmulCall {
    const MatmulPlan& plan;
    const void *a, *b, *alpha, *beta;  ///< alpha and beta on the device
    void *out, *workspace;
    size_t workspace_bytes;
};

cublasStatus_t run(const DeviceState&, const MatmulCall&, const cublasLtMatmulAlgo_t&, void* out);

/// The heuristic's candidates, best guess first. Throws if there is none; `what` names the product.
std::vector<cublasLtMatmulAlgo_t> candidates(const DeviceState&, const MatmulPlan&,
                                             const cublasLtMatmulPreference_t, const std::string& what);

/// The fastest of `candidates`, timed on the call's own operands. Its output is not touched: `out_bytes` more
/// memory are taken for a moment; where the device has none, the first candidate is it.
cublasLtMatmulAlgo_t fastest(const DeviceState&, const MatmulCall&,
                             const std::vector<cublasLtMatmulAlgo_t>& candidates, size_t out_bytes);

/// Throws Exit::device unless the library here takes this algorithm for the product.
void check_choice(const DeviceState&, const MatmulPlan&, const cublasLtMatmulAlgo_t&, size_t workspace,
                  const std::string& what);

}  // namespace q2::cuda
