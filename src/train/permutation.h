// A seeded shuffle of 0..size-1 that is computed, not stored: a Feistel network over the next power of four,
// walked until it comes back into range (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002).
#pragma once

#include <bit>
#include <cstdint>

#include "base/check.h"
#include "base/rng.h"

namespace q2 {

class Permutation {
  public:
    /// The shuffle of epoch `epoch` of a run of seed `seed`.
    Permutation(int64_t size, uint64_t seed, uint64_t epoch)
        : size_(uint64_t(size)), seed_(seed), epoch_(epoch) {
        require(size > 0, "a permutation of ", size, " elements");
        half_bits_ = (std::bit_width(size_ - 1) + 1) / 2;
        mask_ = (uint64_t(1) << half_bits_) - 1;
    }

    /// Where position `index` of the epoch points. The network is a bijection of at most 4 * size numbers, so
    /// the walk is short and ends.
    int64_t operator()(int64_t index) const {
        require(index >= 0 && uint64_t(index) < size_, "position ", index, " of an epoch of ", size_);
        uint64_t at = uint64_t(index);
        do at = network(at);
        while (at >= size_);
        return int64_t(at);
    }

  private:
    static constexpr uint32_t kRounds = 8;

    uint64_t size_, seed_, epoch_, mask_ = 0;
    int half_bits_ = 0;

    uint64_t network(uint64_t at) const {
        uint64_t left = at >> half_bits_, right = at & mask_;
        for (uint32_t round = 0; round < kRounds; ++round) {
            const uint64_t next = left ^ (draw(uint32_t(right), round) & mask_);
            left = right;
            right = next;
        }
        return left << half_bits_ | right;
    }

    /// Address: the half as position, round and the epoch's high bits as row, the epoch in place of the step.
    uint32_t draw(uint32_t half, uint32_t round) const {
        return philox(uint32_t(seed_), uint32_t(seed_ >> 32), half, round | uint32_t(epoch_ >> 32) << 3,
                      uint32_t(Stream::data_order), uint32_t(epoch_))
            .word[0];
    }
};

}  // namespace q2
