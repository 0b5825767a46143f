// Sums of products of bytes by the instruction that makes sixteen of four products each (AVX512-VNNI). Compiled for it alone, and run only
// where it is.
#include "kernels/quantized.h"

#if defined(__AVX512VNNI__)
#include <immintrin.h>

#include <cstdlib>
#include <cstring>

namespace dovetail {
namespace {

// Pixels whose sums, for two panels, stay in registers beside the weights.
constexpr int kRows = 12;
constexpr int kAtATime = 8;  // bytes of the depth

inline __attribute__((always_inline)) __m512i four_bytes(const std::byte* from) {
    int word;
    std::memcpy(&word, from, sizeof word);
    return _mm512_set1_epi32(word);
}

// The instruction takes bytes of x without sign: signed ones are 128 more then, which is taken away at the end.
template <int rows, int panels, bool is_signed>
void some_pixels(const ByteTile& tile, const std::byte* x, std::int32_t* sums, bool fetches) {
    const __m512i flip = _mm512_set1_epi8(static_cast<char>(0x80));
    __m512i total[rows][panels], excess[panels];
    for (int p = 0; p < panels; ++p) {
        excess[p] = _mm512_setzero_si512();
        const __m512i offset = _mm512_loadu_si512(tile.offset + p * kByteColumns);
        for (int r = 0; r < rows; ++r) total[r][p] = offset;
    }
    const std::int8_t *weights = tile.weights, *next = tile.next;
    const std::int64_t step = tile.step;
    for (std::int64_t s = 0; s < tile.segments; ++s) {
        const std::byte* from = x + tile.offsets[s];
        for (std::int64_t block = 0; block < tile.blocks; ++block, weights += panels * kByteBlock, from += kByteDepth) {
            const std::int64_t depth = block + 1 < tile.blocks ? kByteDepth : tile.last_depth;
            for (std::int64_t line = 0; fetches && line < tile.next_step; line += 64)
                _mm_prefetch(reinterpret_cast<const char*>(next) + line, _MM_HINT_T1);
            next += tile.next_step;
            for (std::int64_t k = 0; k < depth; k += kAtATime)
#pragma GCC unroll 4
                for (std::int64_t i = k; i < k + kAtATime; i += 4) {
                    __m512i w[panels];
                    for (int p = 0; p < panels; ++p) {
                        w[p] = _mm512_loadu_si512(weights + p * kByteBlock + i * kByteColumns);
                        if (is_signed) excess[p] = _mm512_dpbusd_epi32(excess[p], flip, w[p]);
                    }
#pragma GCC unroll 12
                    for (int r = 0; r < rows; ++r) {
                        __m512i bytes = four_bytes(from + r * step + i);
                        if (is_signed) bytes = _mm512_xor_si512(bytes, flip);
                        for (int p = 0; p < panels; ++p) total[r][p] = _mm512_dpbusd_epi32(total[r][p], bytes, w[p]);
                    }
                }
        }
    }
    for (int r = 0; r < rows; ++r)
        for (int p = 0; p < panels; ++p)
            _mm512_storeu_si512(sums + r * kSumsPitch + p * kByteColumns, _mm512_sub_epi32(total[r][p], excess[p]));
}

template <int rows, int panels>
void of_sign(const ByteTile& tile, const std::byte* x, std::int32_t* sums, bool fetches) {
    tile.is_signed ? some_pixels<rows, panels, true>(tile, x, sums, fetches) : some_pixels<rows, panels, false>(tile, x, sums, fetches);
}

template <int rows>
void some(int count, const ByteTile& tile, const std::byte* x, std::int32_t* sums, bool fetches) {
    if constexpr (rows > 1)
        if (count < rows) return some<rows - 1>(count, tile, x, sums, fetches);
    tile.panels == 2 ? of_sign<rows, 2>(tile, x, sums, fetches) : of_sign<rows, 1>(tile, x, sums, fetches);
}

// Pixels in parts of equal sizes.
void multiply(const ByteTile& tile) {
    int left = tile.pixels;
    const std::byte* x = tile.x;
    std::int32_t* sums = tile.sums;
    for (int parts = (left + kRows - 1) / kRows; parts > 0; --parts) {
        const int count = (left + parts - 1) / parts;
        some<kRows>(count, tile, x, sums, left == tile.pixels);
        x += count * tile.step;
        sums += count * kSumsPitch;
        left -= count;
    }
}

void end() {}

}  // namespace

const ByteUnit* product_unit() {
    static const ByteUnit unit{multiply, end, "vnni"};
    static const bool there =
        std::getenv("DOVETAIL_ISA") == nullptr && isa() == Isa::avx512 && __builtin_cpu_supports("avx512vnni");
    return there ? &unit : nullptr;
}

}  // namespace dovetail

#else

namespace dovetail {

const ByteUnit* product_unit() { return nullptr; }

}  // namespace dovetail

#endif
