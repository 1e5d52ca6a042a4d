#include "kernels/cuda/matmul_choice.h"

#include <algorithm>

namespace q2::cuda {
namespace {

constexpr int kCandidates = 8, kRounds = 3, kCalls = 3;
constexpr float kWorthwhile = 0.98f;  // of the first candidate's time: less of a gain may be noise

/// Device memory, or null where there is none left.
DeviceBytes try_bytes(size_t bytes) {
    void* data = nullptr;
    if (cudaMalloc(&data, bytes) != cudaSuccess) cudaGetLastError();
    return DeviceBytes(data);
}

Event make_timer() {
    cudaEvent_t event;
    Q2_CUDA(cudaEventCreate(&event));
    return Event(event);
}

/// Milliseconds of a few calls, or infinity where the library refuses one.
float time_of(const DeviceState& state, const MatmulCall& call, const cublasLtMatmulAlgo_t& algorithm,
              void* out) {
    const Event start = make_timer(), end = make_timer();
    if (run(state, call, algorithm, out) != CUBLAS_STATUS_SUCCESS) return INFINITY;
    Q2_CUDA(cudaEventRecord(start.get(), state.stream.get()));
    for (int i = 0; i < kCalls; ++i) check_cublas(run(state, call, algorithm, out), "cublasLtMatmul");
    Q2_CUDA(cudaEventRecord(end.get(), state.stream.get()));
    Q2_CUDA(cudaEventSynchronize(end.get()));
    float ms = 0;
    Q2_CUDA(cudaEventElapsedTime(&ms, start.get(), end.get()));
    return ms;
}

}  // namespace

cublasStatus_t run(const DeviceState& state, const MatmulCall& c, const cublasLtMatmulAlgo_t& algorithm,
                   void* out) {
    return cublasLtMatmul(state.lt.get(), c.plan.operation.get(), c.alpha, c.a, c.plan.a.get(), c.b,
                          c.plan.b.get(), c.beta, out, c.plan.out.get(), out, c.plan.out.get(), &algorithm,
                          c.workspace, c.workspace_bytes, state.stream.get());
}

std::vector<cublasLtMatmulAlgo_t> candidates(const DeviceState& state, const MatmulPlan& plan,
                                             const cublasLtMatmulPreference_t preference,
                                             const std::string& what) {
    std::array<cublasLtMatmulHeuristicResult_t, kCandidates> results;
    int found = 0;
    check_cublas(cublasLtMatmulAlgoGetHeuristic(state.lt.get(), plan.operation.get(), plan.a.get(),
                                                plan.b.get(), plan.out.get(), plan.out.get(), preference,
                                                kCandidates, results.data(), &found),
                 concat("cublasLtMatmulAlgoGetHeuristic for ", what).c_str());
    check(found > 0, Exit::device, "cuBLASLt has no algorithm for ", what);
    std::vector<cublasLtMatmulAlgo_t> algorithms;
    for (int i = 0; i < found; ++i) algorithms.push_back(results[size_t(i)].algo);
    return algorithms;
}

cublasLtMatmulAlgo_t fastest(const DeviceState& state, const MatmulCall& call,
                             const std::vector<cublasLtMatmulAlgo_t>& candidates, size_t out_bytes) {
    const DeviceBytes out = try_bytes(out_bytes);
    if (!out) return candidates.front();
    Q2_CUDA(cudaMemsetAsync(out.get(), 0, out_bytes, state.stream.get()));
    std::vector<float> best(candidates.size(), INFINITY);
    for (int round = 0; round < kRounds; ++round)  // in turns, since the clock drifts
        for (size_t i = 0; i < candidates.size(); ++i)
            best[i] = std::min(best[i], time_of(state, call, candidates[i], out.get()));
    const size_t first = size_t(std::min_element(best.begin(), best.end()) - best.begin());
    return candidates[best[first] < kWorthwhile * best[0] ? first : 0];
}

void check_choice(const DeviceState& state, const MatmulPlan& plan, const cublasLtMatmulAlgo_t& algorithm,
                  size_t workspace, const std::string& what) {
    cublasLtMatmulHeuristicResult_t result;
    const cublasStatus_t status =
        cublasLtMatmulAlgoCheck(state.lt.get(), plan.operation.get(), plan.a.get(), plan.b.get(),
                                plan.out.get(), plan.out.get(), &algorithm, &result);
    check(status == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= workspace, Exit::device,
          "the algorithm that the checkpoint names for ", what,
          " is not one of this GPU and cuBLASLt; to go on with other algorithms, and with sums in another "
          "order, set "
          "train.matmul to \"heuristic\"");
}

}  // namespace q2::cuda
