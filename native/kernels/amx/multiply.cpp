// Sums of products of bytes in the tiles of the processor's matrix unit (AMX). Compiled for it alone, and run only where it is.
#include "kernels/quantized.h"

#if defined(__AMX_INT8__) && defined(__linux__)
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>

namespace dovetail {
namespace {

struct alignas(64) Config {
    std::uint8_t palette = 1;
    std::uint8_t start = 0;
    std::uint8_t reserved[14] = {};
    std::uint16_t bytes[16] = {};
    std::uint8_t rows[16] = {};
};

// The rows of both tiles of pixels that this thread's tiles are set for; 0: they are not set.
thread_local int set_for = 0;

void set(int first, int second) {
    const int wanted = first * 64 + second;
    if (set_for == wanted) return;
    Config config;
    // 0 and 1 the sums of the first pixels, 2 and 3 those of the second; 4 and 5 pixels, 6 and 7 weights.
    const int rows[8] = {first, first, second, second, first, second, 16, 16};
    for (int tile = 0; tile < 8; ++tile) {
        config.rows[tile] = static_cast<std::uint8_t>(rows[tile] ? rows[tile] : 1);
        config.bytes[tile] = 64;
    }
    _tile_loadconfig(&config);
    set_for = wanted;
}

// So far ahead weights are asked for, which have been fetched into the second level of cache before.
constexpr int kAhead = 8 << 10;

// The compiler takes the numbers of tiles as they are written.
#define DOVETAIL_MULTIPLY_ADD(sums, pixels, weights)  \
    do {                                              \
        if (is_signed)                                \
            _tile_dpbssd(sums, pixels, weights);      \
        else                                          \
            _tile_dpbusd(sums, pixels, weights);      \
    } while (false)

template <bool is_signed, bool both_pixels, bool both_panels>
void sums_of(const ByteTile& tile, int first) {
    constexpr int kPitch = kSumsPitch * 4, kPanels = both_panels ? 2 : 1;
    // Every row begins with the same numbers.
    _tile_loadd(0, tile.offset, 0);
    if (both_panels) _tile_loadd(1, tile.offset + kByteColumns, 0);
    if (both_pixels) _tile_loadd(2, tile.offset, 0);
    if (both_pixels && both_panels) _tile_loadd(3, tile.offset + kByteColumns, 0);
    const std::int8_t *weights = tile.weights, *next = tile.next;
    for (std::int64_t s = 0; s < tile.segments; ++s) {
        const std::byte *above = tile.x + tile.offsets[s], *below = above + first * tile.step;
        for (std::int64_t k = 0; k < tile.blocks; ++k, weights += kPanels * kByteBlock, above += kByteDepth, below += kByteDepth) {
            for (int line = 0; line < kPanels * kByteBlock; line += 64)
                _mm_prefetch(reinterpret_cast<const char*>(weights) + kAhead + line, _MM_HINT_T0);
            for (std::int64_t line = 0; line < tile.next_step; line += 64)
                _mm_prefetch(reinterpret_cast<const char*>(next) + line, _MM_HINT_T1);
            next += tile.next_step;
            _tile_loadd(4, above, tile.step);
            _tile_loadd(6, weights, 64);
            DOVETAIL_MULTIPLY_ADD(0, 4, 6);
            if (both_panels) {
                _tile_loadd(7, weights + kByteBlock, 64);
                DOVETAIL_MULTIPLY_ADD(1, 4, 7);
            }
            if (both_pixels) {
                _tile_loadd(5, below, tile.step);
                DOVETAIL_MULTIPLY_ADD(2, 5, 6);
                if (both_panels) DOVETAIL_MULTIPLY_ADD(3, 5, 7);
            }
        }
    }
    _tile_stored(0, tile.sums, kPitch);
    if (both_panels) _tile_stored(1, tile.sums + kByteColumns, kPitch);
    if (both_pixels) _tile_stored(2, tile.sums + first * kSumsPitch, kPitch);
    if (both_pixels && both_panels) _tile_stored(3, tile.sums + first * kSumsPitch + kByteColumns, kPitch);
}

template <bool is_signed>
void sums_of(const ByteTile& tile) {
    const int first = tile.pixels <= 16 ? tile.pixels : 16, second = tile.pixels - first;
    set(first, second);
    if (second && tile.panels == 2) return sums_of<is_signed, true, true>(tile, first);
    if (second) return sums_of<is_signed, true, false>(tile, first);
    if (tile.panels == 2) return sums_of<is_signed, false, true>(tile, first);
    sums_of<is_signed, false, false>(tile, first);
}

void multiply(const ByteTile& tile) { tile.is_signed ? sums_of<true>(tile) : sums_of<false>(tile); }

void end() {
    if (set_for == 0) return;
    _tile_release();
    set_for = 0;
}

// Whether the processor has the unit, and the system lets this process use it.
bool is_there() {
    unsigned a = 7, b = 0, c = 0, d = 0;
    __asm__("cpuid" : "+a"(a), "+b"(b), "+c"(c), "+d"(d));
    constexpr unsigned kTile = 1u << 24, kInt8 = 1u << 25;
    if (isa() != Isa::avx512 || (d & kTile) == 0 || (d & kInt8) == 0) return false;
    constexpr long kAskPermission = 0x1023, kTileData = 18;
    return syscall(SYS_arch_prctl, kAskPermission, kTileData) == 0;
}

}  // namespace

const ByteUnit* matrix_unit() {
    static const ByteUnit unit{multiply, end, "amx"};
    static const bool there = std::getenv("DOVETAIL_ISA") == nullptr && is_there();
    return there ? &unit : nullptr;
}

}  // namespace dovetail

#else

namespace dovetail {

const ByteUnit* matrix_unit() { return nullptr; }

}  // namespace dovetail

#endif
