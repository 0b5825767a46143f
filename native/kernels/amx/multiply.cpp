// Products of 8-bit integers in AMX tiles. Compiled with AMX options, and run only where the processor has the unit.
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

// The rows of both pixel tiles in this thread's tile configuration; 0: not configured.
thread_local int configured_rows = 0;

void configure(int first, int second) {
    const int requested = first * 64 + second;
    if (configured_rows == requested) return;
    Config config;
    // Tiles 0 and 1 are the accumulators of the first pixels, 2 and 3 those of the second; 4 and 5 hold pixels, 6 and 7 weights.
    const int rows[8] = {first, first, second, second, first, second, 16, 16};
    for (int tile = 0; tile < 8; ++tile) {
        config.rows[tile] = static_cast<std::uint8_t>(rows[tile] ? rows[tile] : 1);
        config.bytes[tile] = 64;
    }
    _tile_loadconfig(&config);
    configured_rows = requested;
}

// Prefetch distance of weights in bytes; prefetched weights come from L2.
constexpr int kPrefetchBytes = 8 << 10;

// The intrinsics need literal tile indices.
#define DOVETAIL_MULTIPLY_ADD(accumulators, pixels, weights) \
    do {                                                     \
        if (is_signed)                                       \
            _tile_dpbssd(accumulators, pixels, weights);     \
        else                                                 \
            _tile_dpbusd(accumulators, pixels, weights);     \
    } while (false)

template <bool is_signed, bool both_pixels, bool both_panels>
void accumulate(const Int8Tile& tile, int first) {
    constexpr int kPitch = kAccumulatorPitch * 4, kPanels = both_panels ? 2 : 1;
    // A stride of 0 loads the same offsets into every row.
    _tile_loadd(0, tile.offset, 0);
    if (both_panels) _tile_loadd(1, tile.offset + kInt8Columns, 0);
    if (both_pixels) _tile_loadd(2, tile.offset, 0);
    if (both_pixels && both_panels) _tile_loadd(3, tile.offset + kInt8Columns, 0);
    const std::int8_t *weights = tile.weights, *next = tile.next;
    for (std::int64_t s = 0; s < tile.segments; ++s) {
        const std::byte *first_pixels = tile.x + tile.offsets[s], *second_pixels = first_pixels + first * tile.step;
        for (std::int64_t k = 0; k < tile.blocks;
             ++k, weights += kPanels * kInt8Block, first_pixels += kInt8Depth, second_pixels += kInt8Depth) {
            for (int line = 0; line < kPanels * kInt8Block; line += 64)
                _mm_prefetch(reinterpret_cast<const char*>(weights) + kPrefetchBytes + line, _MM_HINT_T0);
            for (std::int64_t line = 0; line < tile.next_step; line += 64)
                _mm_prefetch(reinterpret_cast<const char*>(next) + line, _MM_HINT_T1);
            next += tile.next_step;
            _tile_loadd(4, first_pixels, tile.step);
            _tile_loadd(6, weights, 64);
            DOVETAIL_MULTIPLY_ADD(0, 4, 6);
            if (both_panels) {
                _tile_loadd(7, weights + kInt8Block, 64);
                DOVETAIL_MULTIPLY_ADD(1, 4, 7);
            }
            if (both_pixels) {
                _tile_loadd(5, second_pixels, tile.step);
                DOVETAIL_MULTIPLY_ADD(2, 5, 6);
                if (both_panels) DOVETAIL_MULTIPLY_ADD(3, 5, 7);
            }
        }
    }
    _tile_stored(0, tile.accumulators, kPitch);
    if (both_panels) _tile_stored(1, tile.accumulators + kInt8Columns, kPitch);
    if (both_pixels) _tile_stored(2, tile.accumulators + first * kAccumulatorPitch, kPitch);
    if (both_pixels && both_panels) _tile_stored(3, tile.accumulators + first * kAccumulatorPitch + kInt8Columns, kPitch);
}

template <bool is_signed>
void accumulate(const Int8Tile& tile) {
    const int first = tile.pixels <= 16 ? tile.pixels : 16, second = tile.pixels - first;
    configure(first, second);
    if (second && tile.panels == 2) return accumulate<is_signed, true, true>(tile, first);
    if (second) return accumulate<is_signed, true, false>(tile, first);
    if (tile.panels == 2) return accumulate<is_signed, false, true>(tile, first);
    accumulate<is_signed, false, false>(tile, first);
}

void multiply(const Int8Tile& tile) { tile.is_signed ? accumulate<true>(tile) : accumulate<false>(tile); }

void end() {
    if (configured_rows == 0) return;
    _tile_release();
    configured_rows = 0;
}

// True if the processor has AMX and the system grants its use to this process.
bool is_available() {
    unsigned a = 7, b = 0, c = 0, d = 0;
    __asm__("cpuid" : "+a"(a), "+b"(b), "+c"(c), "+d"(d));
    constexpr unsigned kTile = 1u << 24, kInt8 = 1u << 25;
    if ((d & kTile) == 0 || (d & kInt8) == 0) return false;
    constexpr long kAskPermission = 0x1023, kTileData = 18;
    return syscall(SYS_arch_prctl, kAskPermission, kTileData) == 0;
}

}  // namespace

const Int8Unit* amx_unit() {
    static const Int8Unit unit{multiply, end, "amx"};
    static const bool is_present = std::getenv("DOVETAIL_ISA") == nullptr && is_available();
    return is_present && isa() == Isa::avx512 ? &unit : nullptr;
}

}  // namespace dovetail

#else

namespace dovetail {

const Int8Unit* amx_unit() { return nullptr; }

}  // namespace dovetail

#endif
