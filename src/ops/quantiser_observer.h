// How a step's quantisers did: a table that wraps another's quantising slots and repeats, on a sample of
// rows, what they did, with the functions of base/nvfp4.h and the same draws.
#pragma once

#include <map>
#include <string>

#include "ops/ops.h"

namespace q2 {

/// Of one operand's sampled blocks (a 16x16 tile counts as one).
struct QuantiserFigures {
    int64_t blocks = 0;
    int64_t saturated = 0;            ///< scale is 448
    int64_t zero = 0;                 ///< scale is 0
    int64_t second = 0;               ///< a later candidate than the first won
    int64_t corrections = 0;          ///< MS-EDEN: correction groups
    double sum = 0, sum_squares = 0;  ///< of their correction factors

    double mean() const { return sum / double(corrections); }
    double deviation() const;
};

/// Lends itself to ctx as its table until it is destroyed, as Profiler does.
class QuantiserObserver : public Ops {
  public:
    static constexpr int64_t kRows = 64;  ///< the first rows of each operand are looked at

    explicit QuantiserObserver(Context& ctx);
    ~QuantiserObserver();
    QuantiserObserver(const QuantiserObserver&) = delete;
    QuantiserObserver& operator=(const QuantiserObserver&) = delete;

    struct Key {
        uint32_t layer, gemm, operand;
        auto operator<=>(const Key&) const = default;
    };
    const std::map<Key, QuantiserFigures>& figures() const { return figures_; }

  private:
    void observe(const Quantized& out, const Operand& source, const QuantSpec&, const Rotation&,
                 const Address&);
    static QuantiserObserver& of(Context&);

    Context& ctx_;
    const Ops* real_;
    std::map<Key, QuantiserFigures> figures_;
};

}  // namespace q2
