#include "ops/profiler.h"

#include <algorithm>
#include <chrono>

namespace q2 {

/// A slot's name as a template argument, since a wrapper is a plain function.
template <size_t N>
struct SlotName {
    char text[N];
    constexpr SlotName(const char (&name)[N]) { std::copy_n(name, N, text); }
};

struct ProfilerWrapper {
    template <SlotName name, auto Slot, class... A>
    static auto of(void (*Ops::*)(Context&, A...)) {
        return +[](Context& ctx, A... a) {
            // The context's table is the profiler itself.
            Profiler& self = const_cast<Profiler&>(static_cast<const Profiler&>(*ctx.ops));
            self.real_->synchronize(ctx);
            const auto start = std::chrono::steady_clock::now();
            (self.real_->*Slot)(ctx, a...);
            self.real_->synchronize(ctx);
            Profiler::Entry& entry = self.entries_[name.text];
            entry.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
            ++entry.calls;
        };
    }
};

template <SlotName name, auto Slot>
void wrap(Ops& table) {
    table.*Slot = ProfilerWrapper::of<name, Slot>(Slot);
}

Profiler::Profiler(Context& ctx) : Ops(*ctx.ops), ctx_(ctx), real_(ctx.ops) {
    wrap<"upload", &Ops::upload>(*this);
    wrap<"zero", &Ops::zero>(*this);
    wrap<"embedding_forward", &Ops::embedding_forward>(*this);
    wrap<"embedding_backward", &Ops::embedding_backward>(*this);
    wrap<"residual_rmsnorm_forward", &Ops::residual_rmsnorm_forward>(*this);
    wrap<"residual_rmsnorm_backward", &Ops::residual_rmsnorm_backward>(*this);
    wrap<"rope", &Ops::rope>(*this);
    wrap<"attention_forward", &Ops::attention_forward>(*this);
    wrap<"attention_backward", &Ops::attention_backward>(*this);
    wrap<"swiglu_forward", &Ops::swiglu_forward>(*this);
    wrap<"swiglu_backward", &Ops::swiglu_backward>(*this);
    wrap<"matmul", &Ops::matmul>(*this);
    wrap<"quantize", &Ops::quantize>(*this);
    wrap<"quantize_gradient", &Ops::quantize_gradient>(*this);
    wrap<"cast", &Ops::cast>(*this);
    wrap<"cross_entropy", &Ops::cross_entropy>(*this);
    wrap<"add_loss", &Ops::add_loss>(*this);
    wrap<"gradient_norm", &Ops::gradient_norm>(*this);
    wrap<"adamw", &Ops::adamw>(*this);
    ctx.ops = this;
}

Profiler::~Profiler() { ctx_.ops = real_; }

}  // namespace q2
