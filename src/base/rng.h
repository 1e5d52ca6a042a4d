// Randomness is an address, not a state: Philox4x32-10 (Salmon et al., SC 2011) of (seed, micro-batch,
// position, row, purpose, step). See docs/NUMERICS.md, section 2, for the table of addresses.
#pragma once

#include <cstdint>

#include "base/numeric.h"

namespace q2 {

struct PhiloxWords {
    uint32_t word[4];
};

Q2_HD uint32_t high_product(uint32_t a, uint32_t b) { return uint32_t((uint64_t(a) * b) >> 32); }

Q2_HD PhiloxWords philox(uint32_t key0, uint32_t key1, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3) {
    for (int round = 0; round < 10; ++round) {
        const uint32_t hi0 = high_product(0xD2511F53u, c0), lo0 = 0xD2511F53u * c0;
        const uint32_t hi1 = high_product(0xCD9E8D57u, c2), lo1 = 0xCD9E8D57u * c2;
        c0 = hi1 ^ c1 ^ key0;
        c1 = lo1;
        c2 = hi0 ^ c3 ^ key1;
        c3 = lo0;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return {{c0, c1, c2, c3}};
}

Q2_HD float uniform_of(uint32_t word) { return mul(float(word >> 8), 0x1p-24f); }
Q2_HD float sign_of(uint32_t word) { return (word >> 31) ? -1.0f : 1.0f; }

/// What a draw is for: the low two bits of counter 2.
enum class Purpose : uint32_t { rounding = 0, signs = 1, signs2 = 2 };

/// Streams outside the linear layers: counter 2 from 2^31 up.
enum class Stream : uint32_t { weights = 0x80000000u, data_order = 0x80000001u, sampling = 0x80000002u };

/// Everything of a draw's address but its position and row.
struct DrawStream {
    uint32_t key0, key1, counter2, counter3;

    Q2_HD uint32_t word(uint64_t position, uint32_t row) const {
        return philox(key0, key1, uint32_t(position / 4), row, counter2, counter3).word[position % 4];
    }
    Q2_HD PhiloxWords words(uint64_t position, uint32_t row) const {
        return philox(key0, key1, uint32_t(position / 4), row, counter2, counter3);
    }
    Q2_HD float uniform(uint64_t position, uint32_t row) const { return uniform_of(word(position, row)); }
};

/// The draws of one operand (0 first, 1 second) of one GEMM (fprop 0, dgrad 1, wgrad 2) of linear layer
/// `layer`. micro_batch: its number within the step over all ranks.
Q2_HD DrawStream draw_stream(uint64_t seed, uint32_t step, uint32_t micro_batch, uint32_t layer,
                             uint32_t gemm, uint32_t operand, Purpose purpose) {
    return {uint32_t(seed), uint32_t(seed >> 32) + micro_batch,
            ((layer * 3 + gemm) * 2 + operand) * 4 + uint32_t(purpose), step};
}

}  // namespace q2
