#include "base/checksum.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace q2 {
namespace {

static_assert(std::endian::native == std::endian::little, "files are read and written as little-endian");

constexpr uint64_t kPrime1 = 0x9E3779B185EBCA87u, kPrime2 = 0xC2B2AE3D27D4EB4Fu,
                   kPrime3 = 0x165667B19E3779F9u, kPrime4 = 0x85EBCA77C2B2AE63u,
                   kPrime5 = 0x27D4EB2F165667C5u;

template <class T>
T read(const uint8_t* bytes) {
    T value;
    std::memcpy(&value, bytes, sizeof value);
    return value;
}

uint64_t round_of(uint64_t lane, uint64_t input) { return std::rotl(lane + input * kPrime2, 31) * kPrime1; }

uint64_t avalanche(uint64_t hash) {
    hash = (hash ^ (hash >> 33)) * kPrime2;
    hash = (hash ^ (hash >> 29)) * kPrime3;
    return hash ^ (hash >> 32);
}

/// The bytes after the last whole stripe: words of 8, then of 4, then single ones.
uint64_t mix_tail(uint64_t hash, const uint8_t* at, const uint8_t* end) {
    for (; end - at >= 8; at += 8)
        hash = std::rotl(hash ^ round_of(0, read<uint64_t>(at)), 27) * kPrime1 + kPrime4;
    for (; end - at >= 4; at += 4)
        hash = std::rotl(hash ^ (read<uint32_t>(at) * kPrime1), 23) * kPrime2 + kPrime3;
    for (; at < end; ++at) hash = std::rotl(hash ^ (*at * kPrime5), 11) * kPrime1;
    return hash;
}

}  // namespace

void Checksum::stripe(const uint8_t* bytes) {
    for (int i = 0; i < 4; ++i) lanes_[i] = round_of(lanes_[i], read<uint64_t>(bytes + 8 * i));
}

void Checksum::update(const void* bytes, size_t size) {
    const auto* at = static_cast<const uint8_t*>(bytes);
    const size_t waiting = total_ % kStripe;
    total_ += size;
    if (waiting > 0) {
        const size_t taken = std::min(kStripe - waiting, size);
        std::copy_n(at, taken, pending_ + waiting);
        if (waiting + taken < kStripe) return;
        stripe(pending_);
        at += taken;
        size -= taken;
    }
    for (; size >= kStripe; at += kStripe, size -= kStripe) stripe(at);
    std::copy_n(at, size, pending_);
}

uint64_t Checksum::value() const {
    uint64_t hash = kPrime5;
    if (total_ >= kStripe) {
        hash = std::rotl(lanes_[0], 1) + std::rotl(lanes_[1], 7) + std::rotl(lanes_[2], 12) +
               std::rotl(lanes_[3], 18);
        for (const uint64_t lane : lanes_) hash = (hash ^ round_of(0, lane)) * kPrime1 + kPrime4;
    }
    return avalanche(mix_tail(hash + total_, pending_, pending_ + total_ % kStripe));
}

}  // namespace q2
