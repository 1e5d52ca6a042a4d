#include "ops/backend.h"

namespace q2 {

Backend::Backend(const std::string& choice, int device) {
    if (choice == "cpu" || (choice == "auto" && !cuda_ops())) {
        ctx_.ops = cpu_ops();
        ctx_.ops->open(ctx_, device);
        return;
    }
    check(cuda_ops(), Exit::device,
          "backend cuda: this program was built without the CUDA Toolkit; install it and build "
          "again, or use backend cpu");
    ctx_.ops = cuda_ops();
    try {
        ctx_.ops->open(ctx_, device);
    } catch (const Error&) {
        if (choice != "auto") throw;
        ctx_.ops = cpu_ops();
        ctx_.ops->open(ctx_, device);
    }
}

Backend::~Backend() { ctx_.ops->close(ctx_); }

}  // namespace q2
