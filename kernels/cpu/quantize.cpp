// NVFP4 quantisers over whole operands: load (transposed, decoded, padded) -> rotate -> tensor scale ->
// blocks. The arithmetic of a block is base/nvfp4.h; here are the loops around it.
#include <algorithm>
#include <cstring>

#include "base/hadamard.h"
#include "base/nvfp4.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/parallel.h"

namespace q2::cpu {
namespace {

/// The operand as float32 rows, loaded and rotated, with what the rounding needs to know.
struct Rows {
    float* x;  // (rows, inner)
    int64_t rows, inner;
    float amax;
};

// ---- Load ----

float scale_at(const Quantized& q, int64_t row, int64_t block) {
    const int64_t scale_row = q.grid() == Grid::tile ? row / kBlock : row;
    return e4m3_value(static_cast<const uint8_t*>(q.scales.data)[scale_row * q.scales.cols + block]);
}

/// Elements first..first+count-1 of a row of codes, each times e4m3(scale) * factor. first and count % 16 =
/// 0, but for the last rows of a transposed operand.
void decode_row(const Quantized& q, int64_t row, int64_t first, int64_t count, float factor, float* out) {
    const uint8_t* bytes = static_cast<const uint8_t*>(q.codes.data) + (row * q.inner + first) / 2;
    for (int64_t i = 0; i < count; i += kBlock, bytes += sizeof(PackedCodes)) {
        const float scale = mul(scale_at(q, row, (first + i) / kBlock), factor);
        PackedCodes packed;
        std::memcpy(&packed, bytes, sizeof(packed));
        float values[kBlock];
        for (int half = 0; half < 2; ++half) {
            Q2_SIMD
            for (int j = 0; j < 8; ++j)
                values[half * 8 + j] = mul(e2m1_value(int(packed.half[half] >> (4 * j)) & 15), scale);
        }
        if (count - i >= kBlock)
            std::copy_n(values, kBlock, out + i);
        else
            std::copy_n(values, count - i, out + i);
    }
}

/// Reads part of one stored row as float32: of a plain matrix, or of codes.
template <class T>
struct DenseReader {
    const T* data;
    int64_t rows, cols;

    void read(int64_t row, int64_t first, int64_t count, float* out) const {
        const T* in = data + row * cols + first;
        for (int64_t i = 0; i < count; ++i) out[i] = to_float(in[i]);
    }
};

struct CodesReader {
    const Quantized& q;
    float factor;  // the tensor scale, or 1 to leave it to the product
    int64_t rows = q.rows, cols = q.inner;

    void read(int64_t row, int64_t first, int64_t count, float* out) const {
        decode_row(q, row, first, count, factor, out);
    }
};

/// f(reader) with the reader that the source needs.
template <class F>
void with_reader(const Operand& source, float factor, F f) {
    if (source.q) return f(CodesReader{*source.q, factor});
    for_float_type(source.dense.dtype, [&](auto type) {
        using T = decltype(type);
        f(DenseReader<T>{static_cast<const T*>(source.dense.data), source.dense.rows, source.dense.cols});
    });
}

// ---- Rotate ----

constexpr int kMaxRotation = 128;

struct Signs {
    float round[2][kMaxRotation];
};

Signs draw_signs(const Rotation& rotation, const Address& a) {
    Signs signs{};
    for (int round = 0; round < (rotation.size ? rotation.rounds : 0); ++round) {
        const float* given = !a.given ? nullptr : round == 0 ? a.given->signs : a.given->signs2;
        const DrawStream stream = given ? DrawStream{} : signs_stream(*a.state, a, round, rotation.redrawn);
        for (int i = 0; i < rotation.size; ++i)
            signs.round[round][i] = given ? given[i] : sign_of(stream.word(uint64_t(i), 0));
    }
    return signs;
}

/// `kRowChunk` rows of one run of the inner dimension, interleaved: element k of row l at [k][l], so that
/// loads of a transposed source, butterflies and their vectors all go along the rows.
using Tile = float[kMaxRotation][kRowChunk];

template <class Reader>
void load_tile(const Reader& stored, bool transposed, int64_t first, int64_t last, int64_t k0, int64_t run,
               Tile& z) {
    const int64_t inner = transposed ? stored.rows : stored.cols;
    const int64_t count = std::clamp<int64_t>(inner - k0, 0, run);  // beyond it is padding
    if (count < run || last - first < kRowChunk) std::fill_n(z[0], run * kRowChunk, 0.0f);
    if (transposed) {
        // A whole chunk's size is known to the compiler, which then copies in registers.
        const bool whole = last - first == kRowChunk;
        for (int64_t k = 0; k < count; ++k) {
            if (whole)
                stored.read(k0 + k, first, kRowChunk, z[k]);
            else
                stored.read(k0 + k, first, last - first, z[k]);
        }
        return;
    }
    float row[kMaxRotation];
    for (int64_t l = 0; l < last - first; ++l) {
        stored.read(first + l, k0, count, row);
        for (int64_t k = 0; k < count; ++k) z[k][l] = row[k];
    }
}

/// Rows first..last-1 of the logical operand, padded with zeros and rotated, into out (last - first, inner).
template <class Reader>
void load_rows(const Reader& stored, bool transposed, int64_t first, int64_t last, int64_t inner,
               const Rotation& rotation, const Signs& signs, float* out) {
    const int64_t run = rotation.size ? rotation.size : kBlock;
    alignas(64) Tile z;
    for (int64_t k0 = 0; k0 < inner; k0 += run) {
        load_tile(stored, transposed, first, last, k0, run, z);
        for (int round = 0; round < (rotation.size ? rotation.rounds : 0); ++round)
            hadamard_of<kRowChunk>(rotation.size, z[0], signs.round[round]);
        for (int64_t l = 0; l < last - first; ++l)
            for (int64_t k = 0; k < run; ++k) out[l * inner + k0 + k] = z[k][l];
    }
}

float amax_of(const float* x, int64_t count) {
    uint32_t largest = 0;
    for (int64_t i = 0; i < count; ++i) largest = std::max(largest, magnitude_bits(x[i]));
    return float_of(largest);
}

float larger(float a, float b) { return bits_of(a) > bits_of(b) ? a : b; }  // of magnitudes; NaN wins

float largest_of(const float* partial, int64_t count) {
    float largest = 0.0f;
    for (int64_t i = 0; i < count; ++i) largest = larger(largest, partial[i]);
    return largest;
}

Rows prepare(Scratch& scratch, const Operand& source, float codes_factor, const Quantized& out,
             const Amax* amax, const Rotation& rotation, const Address& address) {
    Rows in{scratch.take<float>(out.rows * out.inner), out.rows, out.inner, 0.0f};
    const int64_t chunks = (in.rows + kRowChunk - 1) / kRowChunk;
    float* partial = scratch.take<float>(chunks);
    const Signs signs = draw_signs(rotation, address);
    const bool known = amax && rotation.size == 0;
    with_reader(source, codes_factor, [&](const auto& reader) {
        parallel_rows(in.rows, [&](int64_t first, int64_t last) {
            float* x = in.x + first * in.inner;
            load_rows(reader, source.transposed, first, last, in.inner, rotation, signs, x);
            if (!known) partial[first / kRowChunk] = amax_of(x, (last - first) * in.inner);
        });
    });
    in.amax = known ? float_of(amax->bits) : largest_of(partial, chunks);
    return in;
}

// ---- Round ----

/// Writes a block's codes, and where they are wanted its exact dense values.
struct Writer {
    const Quantized& out;
    uint8_t* codes = static_cast<uint8_t*>(out.codes.data);
    uint8_t* scales = static_cast<uint8_t*>(out.scales.data);
    float* dense = out.dense ? out.dense.as<float>() : nullptr;  // this backend's dense_dtype

    void write_codes(int64_t row, int64_t block, const int (&c)[kBlock]) const {
        if (!codes) return;
        const PackedCodes packed = pack_codes(c);
        std::memcpy(codes + (row * out.inner + block * kBlock) / 2, &packed, sizeof(packed));
    }
    void write_dense(int64_t row, int64_t block, const int (&c)[kBlock], uint8_t scale) const {
        if (!dense) return;
        const float s = e4m3_value(scale);
        float* to = dense + row * out.inner + block * kBlock;
        Q2_SIMD
        for (int i = 0; i < kBlock; ++i) to[i] = mul(e2m1_value(c[i]), s);
    }
    void write(int64_t row, int64_t block, const int (&c)[kBlock], uint8_t scale) const {
        write_codes(row, block, c);
        write_dense(row, block, c, scale);
        if (scales) scales[row * (out.inner / kBlock) + block] = scale;
    }
};

/// The rounding draws of one operand: addressed, or given by a test.
struct RoundingDraws {
    DrawStream stream;
    const Draws* given;
    int64_t inner;

    explicit RoundingDraws(const Address& a, int64_t inner) : stream{}, given(a.given), inner(inner) {
        if (a.state) stream = rounding_stream(*a.state, a);
    }
    void elements(int64_t row, int64_t block, float (&u)[kBlock]) const {
        if (given && given->uniform_element) {
            std::copy_n(given->uniform_element + row * inner + block * kBlock, kBlock, u);
            return;
        }
        for (int i = 0; i < kBlock; i += 4) {
            const PhiloxWords w = stream.words(uint64_t(block * kBlock + i), uint32_t(row));
            for (int j = 0; j < 4; ++j) u[i + j] = uniform_of(w.word[j]);
        }
    }
    /// Of blocks at..at+count-1; at % 4 = 0.
    void blocks(int64_t row, int64_t at, int count, float* u) const {
        if (given && given->uniform_block) {
            std::copy_n(given->uniform_block + row * (inner / kBlock) + at, count, u);
            return;
        }
        for (int b = 0; b < count; b += 4) {
            const PhiloxWords w = stream.words(uint64_t(at + b), uint32_t(row));
            for (int j = 0; j < std::min(4, count - b); ++j) u[b + j] = uniform_of(w.word[j]);
        }
    }
};

void set_tensor_scale(const Quantized& out, float s_t) { *out.tensor_scale.as<float>() = s_t; }

void round_nearest_blocks(const Rows& in, const Quantized& out, Rule rule, float s_t) {
    const Writer writer{out};
    const Candidates candidates = nearest_candidates(rule);
    parallel_rows(in.rows, [&](int64_t first, int64_t last) {
        for (int64_t row = first; row < last; ++row)
            for (int64_t block = 0; block < in.inner / kBlock; ++block) {
                const auto* x =
                    reinterpret_cast<const float(*)[kBlock]>(in.x + row * in.inner + block * kBlock);
                int codes[1][kBlock];
                const uint8_t scale = quantize_block<1>(x, s_t, candidates, rule, NearestCodes{}, codes);
                writer.write(row, block, codes[0], scale);
            }
    });
}

void round_nearest_tiles(const Rows& in, const Quantized& out, Rule rule, float s_t) {
    const Writer writer{out};
    const Candidates candidates = nearest_candidates(rule);
    const int64_t blocks = in.inner / kBlock;
    parallel_for(in.rows / kBlock, [&](int64_t tile_row) {
        for (int64_t block = 0; block < blocks; ++block) {
            float x[kBlock][kBlock];
            int codes[kBlock][kBlock];
            for (int r = 0; r < kBlock; ++r)
                std::copy_n(in.x + (tile_row * kBlock + r) * in.inner + block * kBlock, kBlock, x[r]);
            const uint8_t scale = quantize_block<kBlock>(x, s_t, candidates, rule, NearestCodes{}, codes);
            for (int r = 0; r < kBlock; ++r) {
                writer.write_codes(tile_row * kBlock + r, block, codes[r]);
                writer.write_dense(tile_row * kBlock + r, block, codes[r], scale);
            }
            if (writer.scales) writer.scales[tile_row * blocks + block] = scale;
        }
    });
}

void round_stochastic(const Rows& in, const Quantized& out, Rule rule, float s_t,
                      const RoundingDraws& draws) {
    const Writer writer{out};
    const Candidates candidates = stochastic_candidates(rule);
    parallel_rows(in.rows, [&](int64_t first, int64_t last) {
        for (int64_t row = first; row < last; ++row)
            for (int64_t block = 0; block < in.inner / kBlock; ++block) {
                const auto* x =
                    reinterpret_cast<const float(*)[kBlock]>(in.x + row * in.inner + block * kBlock);
                float u[1][kBlock];
                draws.elements(row, block, u[0]);
                int codes[1][kBlock];
                const uint8_t scale = quantize_block<1>(x, s_t, candidates, rule, StochasticCodes{u}, codes);
                writer.write(row, block, codes[0], scale);
            }
    });
}

/// Up to eight blocks of a row from block `at` on: one correction group of 128, or groups of 16.
void round_eden_run(const Rows& in, const Writer& writer, int64_t row, int64_t at, int blocks,
                    bool shared_correction, float s_t, const RoundingDraws& draws) {
    int codes[8][kBlock];
    uint8_t scales[8];
    EdenSums sums[8];
    float u[8];
    for (int b = 0; b < blocks; ++b) {
        const float* x = in.x + row * in.inner + (at + b) * kBlock;
        scales[b] = eden_base_scale(block_amax(x), s_t);
        sums[b] = eden_encode(x, scale_reciprocal(scales[b], s_t), codes[b]);
    }
    draws.blocks(row, at, blocks, u);
    const EdenSums shared = shared_correction ? eden_group_sums(sums) : EdenSums{};
    for (int b = 0; b < blocks; ++b) {
        const float correction = eden_correction(shared_correction ? shared : sums[b]);
        writer.write(row, at + b, codes[b], e4m3_sr(mul(e4m3_value(scales[b]), correction), u[b]));
    }
}

void round_eden(const Rows& in, const Quantized& out, int group, float s_t, const RoundingDraws& draws) {
    const Writer writer{out};
    const int64_t blocks = in.inner / kBlock;
    parallel_rows(in.rows, [&](int64_t first, int64_t last) {
        for (int64_t row = first; row < last; ++row)
            for (int64_t at = 0; at < blocks; at += 8)
                round_eden_run(in, writer, row, at, int(std::min<int64_t>(8, blocks - at)), group == 128, s_t,
                               draws);
    });
}

/// One pass over the data keeps codes and corrected pseudo scales c; s_t and the scales then come from c
/// alone.
void round_eden_post_hoc(const Rows& in, const Quantized& out, Scratch& scratch, const RoundingDraws& draws) {
    const Writer writer{out};
    const int64_t blocks = in.inner / kBlock;
    float* c = scratch.take<float>(in.rows * blocks);
    PackedCodes* packed = scratch.take<PackedCodes>(in.rows * blocks);
    float* partial = scratch.take<float>((in.rows + kRowChunk - 1) / kRowChunk);
    parallel_rows(in.rows, [&](int64_t first, int64_t last) {
        for (int64_t i = first * blocks; i < last * blocks; ++i) {
            int codes[kBlock];
            const float pseudo = eden_pseudo_scale(block_amax(in.x + i * kBlock));
            const EdenSums sums =
                eden_encode(in.x + i * kBlock, pseudo == 0.0f ? 0.0f : div(1.0f, pseudo), codes);
            packed[i] = pack_codes(codes);
            c[i] = mul(pseudo, eden_correction(sums));
        }
        partial[first / kRowChunk] = amax_of(c + first * blocks, (last - first) * blocks);
    });
    const float s_t = post_hoc_tensor_scale(largest_of(partial, (in.rows + kRowChunk - 1) / kRowChunk));
    set_tensor_scale(out, s_t);
    parallel_rows(in.rows, [&](int64_t first, int64_t last) {
        for (int64_t row = first; row < last; ++row)
            for (int64_t at = 0; at < blocks; at += 4) {
                const int count = int(std::min<int64_t>(4, blocks - at));
                float u[4];
                draws.blocks(row, at, count, u);
                for (int b = 0; b < count; ++b) {
                    const int64_t i = row * blocks + at + b;
                    int codes[kBlock];
                    for (int j = 0; j < kBlock; ++j) codes[j] = unpack_code(packed[i], j);
                    writer.write(row, at + b, codes, e4m3_sr(div(c[i], s_t), u[b]));
                }
            }
    });
}

void keep(const Rows& in, const Quantized& out) {
    float* to = out.dense.as<float>();
    parallel_rows(in.rows, [&](int64_t first, int64_t last) {
        std::copy(in.x + first * in.inner, in.x + last * in.inner, to + first * in.inner);
    });
}

}  // namespace

void quantize(Context& ctx, const Quantized& out, Operand source, const Amax* amax, const QuantSpec& spec,
              const Rotation& rotation, const Address& address) {
    const bool exact_codes = spec.rounding == Rounding::keep && source.q && rotation.size == 0;
    const float codes_scale = source.q ? *source.q->tensor_scale.as<float>() : 1.0f;
    Scratch scratch(ctx, "quantize");
    const Rows in = prepare(scratch, source, exact_codes ? 1.0f : codes_scale, out, amax, rotation, address);
    const RoundingDraws draws(address, out.inner);
    switch (spec.rounding) {
        case Rounding::keep:
            set_tensor_scale(out, exact_codes ? codes_scale : 1.0f);
            return keep(in, out);
        case Rounding::nearest: {
            const float s_t = tensor_scale(in.amax, kTop, scale_limit(spec.rule));
            set_tensor_scale(out, s_t);
            return spec.grid == Grid::tile ? round_nearest_tiles(in, out, spec.rule, s_t)
                                           : round_nearest_blocks(in, out, spec.rule, s_t);
        }
        case Rounding::stochastic: {
            const float s_t = tensor_scale(in.amax, kTopStochastic, scale_limit(spec.rule));
            set_tensor_scale(out, s_t);
            return round_stochastic(in, out, spec.rule, s_t, draws);
        }
        case Rounding::ms_eden: {
            if (spec.range == Range::post_hoc) return round_eden_post_hoc(in, out, scratch, draws);
            const float s_t = tensor_scale(in.amax, kTopEden, kScaleLimitEden);
            set_tensor_scale(out, s_t);
            return round_eden(in, out, spec.correction, s_t, draws);
        }
    }
}

void quantize_gradient(Context& ctx, const Quantized* for_dgrad, const Quantized* for_wgrad, Tensor e,
                       const GemmSpec& dgrad, const GemmSpec& wgrad, const Address& dgrad_address,
                       const Address& wgrad_address) {
    if (for_dgrad) quantize(ctx, *for_dgrad, {.dense = e}, nullptr, dgrad.a, dgrad.rotation, dgrad_address);
    if (for_wgrad)
        quantize(ctx, *for_wgrad, {.dense = e, .transposed = true}, nullptr, wgrad.a, wgrad.rotation,
                 wgrad_address);
}

size_t quantize_scratch(int64_t rows, int64_t inner) {
    const int64_t blocks = rows * (inner / kBlock), chunks = (rows + kRowChunk - 1) / kRowChunk;
    return Scratch::rounded(rows * inner * sizeof(float)) + Scratch::rounded(blocks * sizeof(float)) +
           Scratch::rounded(blocks * sizeof(PackedCodes)) + 2 * Scratch::rounded(chunks * sizeof(float));
}

}  // namespace q2::cpu
