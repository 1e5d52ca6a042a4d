// XXH64 with seed 0 (github.com/Cyan4973/xxHash, doc/xxhash_spec.md): it guards files against accidental
// damage, not against forgery. `xxhsum -H64 FILE` prints the same number.
#pragma once

#include <cstddef>
#include <cstdint>

namespace q2 {

/// Streaming: the value does not depend on how the bytes are cut into updates.
class Checksum {
  public:
    void update(const void* bytes, size_t size);
    uint64_t value() const;

  private:
    static constexpr uint64_t kPrime1 = 0x9E3779B185EBCA87u, kPrime2 = 0xC2B2AE3D27D4EB4Fu;
    static constexpr size_t kStripe = 32;

    uint64_t lanes_[4] = {kPrime1 + kPrime2, kPrime2, 0, 0 - kPrime1};
    uint8_t pending_[kStripe];  ///< the first total_ % kStripe bytes of it wait for a whole stripe
    uint64_t total_ = 0;

    void stripe(const uint8_t* bytes);
};

}  // namespace q2
