// Products of 8-bit integers with AVX512-VNNI, sixteen dot products of four bytes per instruction. Compiled with VNNI options,
// and run only if the processor has VNNI.
#include "kernels/quantized.h"

#if defined(__AVX512VNNI__)
#include <immintrin.h>

#include <cstdlib>
#include <cstring>

namespace dovetail {
namespace {

// Maximum number of pixels whose accumulators, for two panels, fit into the registers together with the weights.
constexpr int kMaxPixels = 12;
constexpr int kUnroll = 8;  // bytes of depth

inline __attribute__((always_inline)) __m512i broadcast_word(const std::byte* from) {
    int word;
    std::memcpy(&word, from, sizeof word);
    return _mm512_set1_epi32(word);
}

// The instruction takes unsigned x. Signed bytes are passed with 128 added, which `excess` corrects at the end.
template <int rows, int panels, bool is_signed>
void accumulate_pixels(const Int8Tile& tile, const std::byte* x, std::int32_t* accumulators, bool prefetches) {
    const __m512i flip = _mm512_set1_epi8(static_cast<char>(0x80));
    __m512i total[rows][panels], excess[panels];
    for (int p = 0; p < panels; ++p) {
        excess[p] = _mm512_setzero_si512();
        const __m512i offset = _mm512_loadu_si512(tile.offset + p * kInt8Columns);
        for (int r = 0; r < rows; ++r) total[r][p] = offset;
    }
    const std::int8_t *weights = tile.weights, *next = tile.next;
    const std::int64_t step = tile.step;
    for (std::int64_t s = 0; s < tile.segments; ++s) {
        const std::byte* from = x + tile.offsets[s];
        for (std::int64_t block = 0; block < tile.blocks; ++block, weights += panels * kInt8Block, from += kInt8Depth) {
            const std::int64_t depth = block + 1 < tile.blocks ? kInt8Depth : tile.last_depth;
            for (std::int64_t line = 0; prefetches && line < tile.next_step; line += 64)
                _mm_prefetch(reinterpret_cast<const char*>(next) + line, _MM_HINT_T1);
            next += tile.next_step;
            for (std::int64_t k = 0; k < depth; k += kUnroll)
#pragma GCC unroll 4
                for (std::int64_t i = k; i < k + kUnroll; i += 4) {
                    __m512i w[panels];
                    for (int p = 0; p < panels; ++p) {
                        w[p] = _mm512_loadu_si512(weights + p * kInt8Block + i * kInt8Columns);
                        if (is_signed) excess[p] = _mm512_dpbusd_epi32(excess[p], flip, w[p]);
                    }
#pragma GCC unroll 12
                    for (int r = 0; r < rows; ++r) {
                        __m512i bytes = broadcast_word(from + r * step + i);
                        if (is_signed) bytes = _mm512_xor_si512(bytes, flip);
                        for (int p = 0; p < panels; ++p) total[r][p] = _mm512_dpbusd_epi32(total[r][p], bytes, w[p]);
                    }
                }
        }
    }
    for (int r = 0; r < rows; ++r)
        for (int p = 0; p < panels; ++p)
            _mm512_storeu_si512(accumulators + r * kAccumulatorPitch + p * kInt8Columns,
                                _mm512_sub_epi32(total[r][p], excess[p]));
}

template <int rows, int panels>
void dispatch_sign(const Int8Tile& tile, const std::byte* x, std::int32_t* accumulators, bool prefetches) {
    tile.is_signed ? accumulate_pixels<rows, panels, true>(tile, x, accumulators, prefetches)
                   : accumulate_pixels<rows, panels, false>(tile, x, accumulators, prefetches);
}

template <int rows>
void dispatch_count(int count, const Int8Tile& tile, const std::byte* x, std::int32_t* accumulators, bool prefetches) {
    if constexpr (rows > 1)
        if (count < rows) return dispatch_count<rows - 1>(count, tile, x, accumulators, prefetches);
    tile.panels == 2 ? dispatch_sign<rows, 2>(tile, x, accumulators, prefetches)
                     : dispatch_sign<rows, 1>(tile, x, accumulators, prefetches);
}

// Multiplies a tile in parts of at most kMaxPixels pixels. The numbers of pixels of the parts differ by at most 1.
void multiply(const Int8Tile& tile) {
    int remaining = tile.pixels;
    const std::byte* x = tile.x;
    std::int32_t* accumulators = tile.accumulators;
    for (int parts = (remaining + kMaxPixels - 1) / kMaxPixels; parts > 0; --parts) {
        const int count = (remaining + parts - 1) / parts;
        dispatch_count<kMaxPixels>(count, tile, x, accumulators, remaining == tile.pixels);
        x += count * tile.step;
        accumulators += count * kAccumulatorPitch;
        remaining -= count;
    }
}

void end() {}

}  // namespace

const Int8Unit* vnni_unit() {
    static const Int8Unit unit{multiply, end, "vnni"};
    static const bool is_present = std::getenv("DOVETAIL_ISA") == nullptr && __builtin_cpu_supports("avx512vnni");
    return is_present && isa() == Isa::avx512 ? &unit : nullptr;
}

}  // namespace dovetail

#else

namespace dovetail {

const Int8Unit* vnni_unit() { return nullptr; }

}  // namespace dovetail

#endif
