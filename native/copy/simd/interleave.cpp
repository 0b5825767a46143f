// Elements put in turn and taken apart again, in registers.
#include "copy/simd/write_combining.h"
#include "copy/simd/copy_kernels.h"

namespace dovetail::DOVETAIL_ISA {
namespace {

inline std::int64_t most(std::int64_t a, std::int64_t b) { return a < b ? b : a; }

// A block: as many rows as each source has in one vector, or one row of wider elements; 16 * Count * pieces bytes of the destination.
template <int Width, int Count>
inline void interleave_block(std::byte* dst, const std::byte* const* src, std::int64_t first) {
    constexpr int block = Width < 16 ? 16 / Width : 1, pieces = Width < 16 ? 1 : Width / 16;
    Vector<16> vectors[Count * pieces];
    for (int k = 0; k < Count * pieces; ++k) vectors[k] = load<16>(src[k / pieces] + first * Width + k % pieces * 16);
    if constexpr (block > 1) shuffles<16, Width, Count, bits(Count)>(vectors);
    for (int k = 0; k < Count * pieces; ++k) store<16>(dst + 16 * k, vectors[k]);
}

// Whether elements are put in turn over whole vectors on their way through the cache: those of 64 bytes, two of which one instruction
// shuffles. On the way past it the memory is what takes time.
template <int Width>
constexpr bool kWide = kVector == 64 && Width <= 16;

// The rows that fill whole vectors of each source; how many these are.
template <int Width, int Count>
std::int64_t interleave_wide(std::byte* dst, const std::byte* const* src, std::int64_t rows) {
    constexpr int whole_vector = static_cast<int>(kVector), block = whole_vector / Width;
    const std::byte* from[Count];
    for (int k = 0; k < Count; ++k) from[k] = src[k];
    const std::int64_t whole = rows / block * block;
    for (std::int64_t i = 0; i < whole; i += block, dst += Count * kVector) {
        Vector<kVector> vectors[Count];
        for (int k = 0; k < Count; ++k) vectors[k] = load<kVector>(from[k] + i * Width);
        if constexpr (Width == 1) {
            // No one instruction picks single bytes of two vectors: first within the lanes, then the lanes.
            shuffles<kVector, Width, Count, bits(Count)>(vectors);
            shuffles<kVector, 16, Count, bits(Count), whole_vector>(vectors);
        } else {
            shuffles<kVector, Width, Count, bits(Count), whole_vector>(vectors);
        }
        for (int k = 0; k < Count; ++k) store<kVector>(dst + static_cast<int>(kVector) * k, vectors[k]);
    }
    return whole;
}

// Its mirror.
template <int Width, int Count>
std::int64_t part_wide(std::byte* const* dst, const std::byte* src, std::int64_t rows) {
    constexpr int block = static_cast<int>(kVector) / Width;
    std::byte* to[Count];
    for (int k = 0; k < Count; ++k) to[k] = dst[k];
    const std::int64_t whole = rows / block * block;
    for (std::int64_t i = 0; i < whole; i += block, src += Count * kVector) {
        Vector<kVector> vectors[Count];
        for (int k = 0; k < Count; ++k) {
            __builtin_prefetch(src + kPage + static_cast<int>(kVector) * k);
            vectors[k] = load<kVector>(src + static_cast<int>(kVector) * k);
        }
        unshuffles<kVector, Width, Count, bits(Count)>(vectors);
        for (int k = 0; k < Count; ++k) store<kVector>(to[k] + i * Width, vectors[k]);
    }
    return whole;
}

// The rows that fill whole blocks; how many these are.
template <int Width, int Count>
std::int64_t interleave_blocks(std::byte* dst, const std::byte* const* src, std::int64_t rows, bool past_cache) {
    constexpr int block = Width < 16 ? 16 / Width : 1, bytes = Width * Count * block;
    constexpr std::int64_t together = 4096 / bytes * block;
    const std::byte* from[Count];
    for (int k = 0; k < Count; ++k) from[k] = src[k];
    const std::int64_t whole = rows / block * block;
    if (!past_cache) {
        std::int64_t i = 0;
        if constexpr (kWide<Width>) i = interleave_wide<Width, Count>(dst, src, rows);
        for (dst += i * Width * Count; i < whole; i += block, dst += bytes) interleave_block<Width, Count>(dst, from, i);
        return whole;
    }
    Batches batches(dst, src[0]);
    for (std::int64_t first = 0; first < whole; first += together) {
        const std::int64_t end = whole - first < together ? whole : first + together;
        std::byte* to = batches.open();
        for (std::int64_t i = first; i < end; i += block, to += bytes) {
            interleave_block<Width, Count>(to, from, i);
            batches.send_as_many(bytes);
        }
        batches.close((end - first) * Width * Count);
    }
    batches.end();
    return whole;
}

// 64 bytes for each of `Count` columns, out of as many rows as that takes: vectors[j][k] becomes the column k's bytes from 16 * j on.
template <int Width, int Count>
inline void part_vectors(Vector<16> (*vectors)[Count], const std::byte* src) {
    constexpr int block = Width < 16 ? 16 / Width : 1;
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
        // Wider than a vector, an element is several of them, one after the other.
        const std::byte* const from = src + (Width <= 16 ? 16 * j * Count : 16 * j / Width * Width * Count + 16 * j % Width);
#pragma GCC unroll 8
        for (int k = 0; k < Count; ++k) vectors[j][k] = load<16>(from + (Width <= 16 ? 16 : Width) * k);
        if constexpr (block > 1) shuffles<16, Width, Count, bits(block)>(vectors[j]);
    }
}

template <int Width, int Count>
std::int64_t part_into_cache(std::byte* const* dst, const std::byte* src, std::int64_t rows) {
    std::int64_t i = 0;
    if constexpr (kWide<Width>) {
        i = part_wide<Width, Count>(dst, src, rows);
    } else {
        constexpr int high = 64 / Width;
        for (; i + high <= rows; i += high, src += 64 * Count) {
            Vector<16> vectors[4][Count];
            part_vectors<Width, Count>(vectors, src);
            for (int k = 0; k < Count; ++k)
                for (int j = 0; j < 4; ++j) store<16>(dst[k] + i * Width + 16 * j, vectors[j][k]);
        }
    }
    return i;
}

// A column's lines on their way past the cache, each destination's as its own address has them. A line leaves some lines after its last
// byte came: what was only just stored cannot be read without waiting for all stores before it.
constexpr std::int64_t kRingLines = 32, kLinesBehind = 12;

struct Ring {
    alignas(64) std::byte lines[kRingLines * 64];

    std::byte* at(std::int64_t byte) { return lines + (byte & (kRingLines * 64 - 1)); }
};

// Every destination is aligned to 16 bytes. Line n of a column is the n-th that it touches; `lead` bytes of its first are not its own.
template <int Width, int Count>
std::int64_t part_past_cache(std::byte* const* dst, const std::byte* src, std::int64_t rows) {
    constexpr int high = 64 / Width;
    const std::int64_t steps = rows / high;
    Ring rings[Count];
    std::int64_t leads[Count];
    std::byte* first[Count];
    for (int k = 0; k < Count; ++k) {
        leads[k] = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(dst[k]) % 64);
        first[k] = dst[k] - leads[k];
    }
    const auto send = [&](std::int64_t line) {
        for (int k = 0; k < Count; ++k)
            for (int part = 0; part < 64; part += static_cast<int>(kVector))
                put_vector<kVector, true>(first[k] + line * 64 + part, load<kVector>(rings[k].at(line * 64) + part));
    };
    const auto send_first = [&] {
        for (int k = 0; k < Count; ++k) std::memcpy(dst[k], rings[k].lines + leads[k], static_cast<std::size_t>(64 - leads[k]));
    };
    for (std::int64_t step = 0; step < steps; ++step, src += 64 * Count) {
        Vector<16> vectors[4][Count];
        part_vectors<Width, Count>(vectors, src);
#pragma GCC unroll 8
        for (int k = 0; k < Count; ++k)
            for (int j = 0; j < 4; ++j) store<16>(rings[k].at(step * 64 + 16 * j + leads[k]), vectors[j][k]);
        if (step > kLinesBehind)
            send(step - kLinesBehind);
        else if (step == kLinesBehind)
            send_first();
    }
    if (steps <= kLinesBehind && steps > 0) send_first();
    for (std::int64_t line = most(1, steps - kLinesBehind); line < steps; ++line) send(line);
    for (int k = 0; k < Count; ++k) std::memcpy(first[k] + steps * 64, rings[k].at(steps * 64), static_cast<std::size_t>(leads[k]));
    return steps * high;
}

template <int Width, int Count>
std::int64_t deinterleave_blocks(std::byte* const* dst, const std::byte* src, std::int64_t rows, bool past_cache) {
    for (int k = 0; k < Count; ++k) past_cache = past_cache && is_aligned(dst[k], 16);
    if (past_cache) return part_past_cache<Width, Count>(dst, src, rows);
    return part_into_cache<Width, Count>(dst, src, rows);
}

template <int Width>
std::int64_t interleave_whole(std::byte* dst, const std::byte* const* src, int count, std::int64_t rows, bool past_cache) {
    switch (count) {
        case 2: return interleave_blocks<Width, 2>(dst, src, rows, past_cache);
        case 4: return interleave_blocks<Width, 4>(dst, src, rows, past_cache);
        case 8: return interleave_blocks<Width, 8>(dst, src, rows, past_cache);
        default: return 0;
    }
}

template <int Width>
std::int64_t deinterleave_whole(std::byte* const* dst, const std::byte* src, int count, std::int64_t rows, bool past_cache) {
    switch (count) {
        case 2: return deinterleave_blocks<Width, 2>(dst, src, rows, past_cache);
        case 4: return deinterleave_blocks<Width, 4>(dst, src, rows, past_cache);
        case 8: return deinterleave_blocks<Width, 8>(dst, src, rows, past_cache);
        default: return 0;
    }
}

// Any count, all sources of a few rows together: one pass over the destination.
constexpr std::int64_t kRowsTogether = 256;

template <typename F>
void by_blocks(std::int64_t first, std::int64_t rows, const F& block) {
    for (; first < rows; first += kRowsTogether) block(first, rows - first < kRowsTogether ? rows - first : kRowsTogether);
}

}  // namespace

void interleave(std::byte* dst, const std::byte* const* src, int count, std::size_t width, std::int64_t rows, bool past_cache) {
    std::int64_t done = 0;
    switch (width) {
        case 1: done = interleave_whole<1>(dst, src, count, rows, past_cache); break;
        case 2: done = interleave_whole<2>(dst, src, count, rows, past_cache); break;
        case 4: done = interleave_whole<4>(dst, src, count, rows, past_cache); break;
        case 8: done = interleave_whole<8>(dst, src, count, rows, past_cache); break;
        case 16: done = interleave_whole<16>(dst, src, count, rows, past_cache); break;
        case 32: done = interleave_whole<32>(dst, src, count, rows, past_cache); break;
        case 64: done = interleave_whole<64>(dst, src, count, rows, past_cache); break;
        default: break;
    }
    const auto step = static_cast<std::ptrdiff_t>(width);
    by_blocks(done, rows, [&](std::int64_t first, std::int64_t size) {
        for (int k = 0; k < count; ++k)
            copy_rows(dst + (first * count + k) * step, count * step, src[k] + first * step, step, size, width);
    });
}

namespace {

void part_rows(std::byte* const* dst, const std::byte* src, int count, std::ptrdiff_t step, std::int64_t first, std::int64_t end) {
    by_blocks(first, end, [&](std::int64_t row, std::int64_t size) {
        for (int k = 0; k < count; ++k)
            copy_rows(dst[k] + row * step, step, src + (row * count + k) * step, count * step, size, static_cast<std::size_t>(step));
    });
}

std::int64_t part_blocks(std::byte* const* dst, const std::byte* src, int count, std::size_t width, std::int64_t rows, bool past_cache) {
    switch (width) {
        case 1: return deinterleave_whole<1>(dst, src, count, rows, past_cache);
        case 2: return deinterleave_whole<2>(dst, src, count, rows, past_cache);
        case 4: return deinterleave_whole<4>(dst, src, count, rows, past_cache);
        case 8: return deinterleave_whole<8>(dst, src, count, rows, past_cache);
        case 16: return deinterleave_whole<16>(dst, src, count, rows, past_cache);
        case 32: return deinterleave_whole<32>(dst, src, count, rows, past_cache);
        case 64: return deinterleave_whole<64>(dst, src, count, rows, past_cache);
        default: return 0;
    }
}

}  // namespace

void deinterleave(std::byte* const* dst, const std::byte* src, int count, std::size_t width, std::int64_t rows, bool past_cache) {
    const auto step = static_cast<std::ptrdiff_t>(width);
    part_rows(dst, src, count, step, part_blocks(dst, src, count, width, rows, past_cache), rows);
}

}  // namespace dovetail::DOVETAIL_ISA
