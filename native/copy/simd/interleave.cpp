// Interleaving and deinterleaving of elements in registers.
#include "copy/simd/copy_kernels.h"
#include "copy/simd/write_combining.h"
#include "int_math.h"

namespace dovetail::DOVETAIL_ISA {
namespace {

// Interleaves one block. A block has as many rows of each source as fill a vector of 16 bytes, or one row if an element has
// 16 bytes or more; an element then has `parts` vectors. In the destination a block has 16 * Count * parts bytes.
template <int Width, int Count>
inline void interleave_block(std::byte* dst, const std::byte* const* src, std::int64_t first) {
    constexpr int block = Width < 16 ? 16 / Width : 1, parts = Width < 16 ? 1 : Width / 16;
    Vector<16> vectors[Count * parts];
    for (int k = 0; k < Count * parts; ++k) vectors[k] = load<16>(src[k / parts] + first * Width + k % parts * 16);
    if constexpr (block > 1) perfect_shuffles<16, Width, Count, log2_of(Count)>(vectors);
    for (int k = 0; k < Count * parts; ++k) store<16>(dst + 16 * k, vectors[k]);
}

// True if whole 64-byte vectors are interleaved or deinterleaved with ordinary stores: one instruction then shuffles two of them.
// With non-temporal stores the copy is bound by memory instead.
template <int Width>
constexpr bool kUsesWholeVectors = kVector == 64 && Width <= 16;

// Interleaves the rows that fill whole vectors of each source; returns their number.
template <int Width, int Count>
std::int64_t interleave_vectors(std::byte* dst, const std::byte* const* src, std::int64_t rows) {
    constexpr int whole_vector = static_cast<int>(kVector), block = whole_vector / Width;
    const std::byte* from[Count];
    for (int k = 0; k < Count; ++k) from[k] = src[k];
    const std::int64_t whole_rows = rows / block * block;
    for (std::int64_t i = 0; i < whole_rows; i += block, dst += Count * kVector) {
        Vector<kVector> vectors[Count];
        for (int k = 0; k < Count; ++k) vectors[k] = load<kVector>(from[k] + i * Width);
        if constexpr (Width == 1) {
            // No single instruction picks bytes from two vectors, so that the bytes are shuffled first within the lanes, then
            // among the lanes.
            perfect_shuffles<kVector, Width, Count, log2_of(Count)>(vectors);
            perfect_shuffles<kVector, 16, Count, log2_of(Count), whole_vector>(vectors);
        } else {
            perfect_shuffles<kVector, Width, Count, log2_of(Count), whole_vector>(vectors);
        }
        for (int k = 0; k < Count; ++k) store<kVector>(dst + static_cast<int>(kVector) * k, vectors[k]);
    }
    return whole_rows;
}

// Deinterleaves one block: the inverse of interleave_block.
template <int Width, int Count>
std::int64_t deinterleave_vectors(std::byte* const* dst, const std::byte* src, std::int64_t rows) {
    constexpr int block = static_cast<int>(kVector) / Width;
    std::byte* to[Count];
    for (int k = 0; k < Count; ++k) to[k] = dst[k];
    const std::int64_t whole_rows = rows / block * block;
    for (std::int64_t i = 0; i < whole_rows; i += block, src += Count * kVector) {
        Vector<kVector> vectors[Count];
        for (int k = 0; k < Count; ++k) {
            __builtin_prefetch(src + kPage + static_cast<int>(kVector) * k);
            vectors[k] = load<kVector>(src + static_cast<int>(kVector) * k);
        }
        inverse_shuffles<kVector, Width, Count, log2_of(Count)>(vectors);
        for (int k = 0; k < Count; ++k) store<kVector>(to[k] + i * Width, vectors[k]);
    }
    return whole_rows;
}

// Interleaves the rows that fill whole blocks; returns their number.
template <int Width, int Count>
std::int64_t interleave_blocks(std::byte* dst, const std::byte* const* src, std::int64_t rows, bool non_temporal) {
    constexpr int block = Width < 16 ? 16 / Width : 1, bytes = Width * Count * block;
    constexpr std::int64_t rows_per_batch = 4096 / bytes * block;
    const std::byte* from[Count];
    for (int k = 0; k < Count; ++k) from[k] = src[k];
    const std::int64_t whole_rows = rows / block * block;
    if (!non_temporal) {
        std::int64_t i = 0;
        if constexpr (kUsesWholeVectors<Width>) i = interleave_vectors<Width, Count>(dst, src, rows);
        for (dst += i * Width * Count; i < whole_rows; i += block, dst += bytes) interleave_block<Width, Count>(dst, from, i);
        return whole_rows;
    }
    WriteCombiner combiner(dst, src[0]);
    for (std::int64_t first = 0; first < whole_rows; first += rows_per_batch) {
        const std::int64_t end = whole_rows - first < rows_per_batch ? whole_rows : first + rows_per_batch;
        std::byte* to = combiner.begin_batch();
        for (std::int64_t i = first; i < end; i += block, to += bytes) {
            interleave_block<Width, Count>(to, from, i);
            combiner.stream_as_many(bytes);
        }
        combiner.end_batch((end - first) * Width * Count);
    }
    combiner.flush();
    return whole_rows;
}

// Collects 64 bytes for each of `Count` columns from consecutive rows: vectors[j][k] holds bytes 16 * j to 16 * j + 15 of column
// k.
template <int Width, int Count>
inline void gather_columns(Vector<16> (*vectors)[Count], const std::byte* src) {
    constexpr int block = Width < 16 ? 16 / Width : 1;
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
        // An element wider than a vector consists of consecutive vectors.
        const std::byte* const from = src + (Width <= 16 ? 16 * j * Count : 16 * j / Width * Width * Count + 16 * j % Width);
#pragma GCC unroll 8
        for (int k = 0; k < Count; ++k) vectors[j][k] = load<16>(from + (Width <= 16 ? 16 : Width) * k);
        if constexpr (block > 1) perfect_shuffles<16, Width, Count, log2_of(block)>(vectors[j]);
    }
}

template <int Width, int Count>
std::int64_t deinterleave_cached(std::byte* const* dst, const std::byte* src, std::int64_t rows) {
    std::int64_t i = 0;
    if constexpr (kUsesWholeVectors<Width>) {
        i = deinterleave_vectors<Width, Count>(dst, src, rows);
    } else {
        constexpr int rows_per_line = 64 / Width;
        for (; i + rows_per_line <= rows; i += rows_per_line, src += 64 * Count) {
            Vector<16> vectors[4][Count];
            gather_columns<Width, Count>(vectors, src);
            for (int k = 0; k < Count; ++k)
                for (int j = 0; j < 4; ++j) store<16>(dst[k] + i * Width + 16 * j, vectors[j][k]);
        }
    }
    return i;
}

// A ring buffer holds the latest cache lines of one destination column; its line boundaries are those of the destination. A
// line is stored non-temporally kLineDelay lines after its last byte was buffered: a load of recently stored bytes waits for
// all earlier stores.
constexpr std::int64_t kRingLines = 32, kLineDelay = 12;

struct Ring {
    alignas(64) std::byte lines[kRingLines * 64];

    std::byte* at(std::int64_t byte) { return lines + (byte & (kRingLines * 64 - 1)); }
};

// Deinterleaves with non-temporal stores; every destination is aligned to 16 bytes. Line n of a column is the n-th cache line
// that the column touches; the first leads[k] bytes of line 0 belong to other data.
template <int Width, int Count>
std::int64_t deinterleave_streaming(std::byte* const* dst, const std::byte* src, std::int64_t rows) {
    constexpr int rows_per_line = 64 / Width;
    const std::int64_t steps = rows / rows_per_line;
    Ring rings[Count];
    std::int64_t leads[Count];
    std::byte* first[Count];
    for (int k = 0; k < Count; ++k) {
        leads[k] = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(dst[k]) % 64);
        first[k] = dst[k] - leads[k];
    }
    const auto stream_line = [&](std::int64_t line) {
        for (int k = 0; k < Count; ++k)
            for (int part = 0; part < 64; part += static_cast<int>(kVector))
                store_vector<kVector, true>(first[k] + line * 64 + part, load<kVector>(rings[k].at(line * 64) + part));
    };
    const auto store_first_line = [&] {
        for (int k = 0; k < Count; ++k) std::memcpy(dst[k], rings[k].lines + leads[k], static_cast<std::size_t>(64 - leads[k]));
    };
    for (std::int64_t step = 0; step < steps; ++step, src += 64 * Count) {
        Vector<16> vectors[4][Count];
        gather_columns<Width, Count>(vectors, src);
#pragma GCC unroll 8
        for (int k = 0; k < Count; ++k)
            for (int j = 0; j < 4; ++j) store<16>(rings[k].at(step * 64 + 16 * j + leads[k]), vectors[j][k]);
        if (step > kLineDelay)
            stream_line(step - kLineDelay);
        else if (step == kLineDelay)
            store_first_line();
    }
    if (steps <= kLineDelay && steps > 0) store_first_line();
    for (std::int64_t line = max(1, steps - kLineDelay); line < steps; ++line) stream_line(line);
    for (int k = 0; k < Count; ++k)
        std::memcpy(first[k] + steps * 64, rings[k].at(steps * 64), static_cast<std::size_t>(leads[k]));
    return steps * rows_per_line;
}

template <int Width, int Count>
std::int64_t deinterleave_blocks(std::byte* const* dst, const std::byte* src, std::int64_t rows, bool non_temporal) {
    for (int k = 0; k < Count; ++k) non_temporal = non_temporal && is_aligned(dst[k], 16);
    if (non_temporal) return deinterleave_streaming<Width, Count>(dst, src, rows);
    return deinterleave_cached<Width, Count>(dst, src, rows);
}

template <int Width>
std::int64_t interleave_whole(std::byte* dst, const std::byte* const* src, int count, std::int64_t rows, bool non_temporal) {
    switch (count) {
        case 2: return interleave_blocks<Width, 2>(dst, src, rows, non_temporal);
        case 4: return interleave_blocks<Width, 4>(dst, src, rows, non_temporal);
        case 8: return interleave_blocks<Width, 8>(dst, src, rows, non_temporal);
        default: return 0;
    }
}

template <int Width>
std::int64_t deinterleave_whole(std::byte* const* dst, const std::byte* src, int count, std::int64_t rows, bool non_temporal) {
    switch (count) {
        case 2: return deinterleave_blocks<Width, 2>(dst, src, rows, non_temporal);
        case 4: return deinterleave_blocks<Width, 4>(dst, src, rows, non_temporal);
        case 8: return deinterleave_blocks<Width, 8>(dst, src, rows, non_temporal);
        default: return 0;
    }
}

// Rows of one block for any number of sources: the block is copied from all sources before the next block, so that the
// destination is traversed once.
constexpr std::int64_t kRowsPerBlock = 256;

template <typename F>
void for_each_block(std::int64_t first, std::int64_t rows, const F& block) {
    for (; first < rows; first += kRowsPerBlock) block(first, rows - first < kRowsPerBlock ? rows - first : kRowsPerBlock);
}

}  // namespace

void interleave(std::byte* dst, const std::byte* const* src, int count, std::size_t width, std::int64_t rows, bool non_temporal) {
    std::int64_t first_row = 0;
    switch (width) {
        case 1: first_row = interleave_whole<1>(dst, src, count, rows, non_temporal); break;
        case 2: first_row = interleave_whole<2>(dst, src, count, rows, non_temporal); break;
        case 4: first_row = interleave_whole<4>(dst, src, count, rows, non_temporal); break;
        case 8: first_row = interleave_whole<8>(dst, src, count, rows, non_temporal); break;
        case 16: first_row = interleave_whole<16>(dst, src, count, rows, non_temporal); break;
        case 32: first_row = interleave_whole<32>(dst, src, count, rows, non_temporal); break;
        case 64: first_row = interleave_whole<64>(dst, src, count, rows, non_temporal); break;
        default: break;
    }
    const auto step = static_cast<std::ptrdiff_t>(width);
    for_each_block(first_row, rows, [&](std::int64_t first, std::int64_t size) {
        for (int k = 0; k < count; ++k)
            copy_rows(dst + (first * count + k) * step, count * step, src[k] + first * step, step, size, width);
    });
}

namespace {

void deinterleave_rows(std::byte* const* dst, const std::byte* src, int count, std::ptrdiff_t step, std::int64_t first,
                       std::int64_t end) {
    for_each_block(first, end, [&](std::int64_t row, std::int64_t size) {
        for (int k = 0; k < count; ++k)
            copy_rows(dst[k] + row * step, step, src + (row * count + k) * step, count * step, size,
                      static_cast<std::size_t>(step));
    });
}

std::int64_t deinterleave_any_width(std::byte* const* dst, const std::byte* src, int count, std::size_t width, std::int64_t rows,
                                    bool non_temporal) {
    switch (width) {
        case 1: return deinterleave_whole<1>(dst, src, count, rows, non_temporal);
        case 2: return deinterleave_whole<2>(dst, src, count, rows, non_temporal);
        case 4: return deinterleave_whole<4>(dst, src, count, rows, non_temporal);
        case 8: return deinterleave_whole<8>(dst, src, count, rows, non_temporal);
        case 16: return deinterleave_whole<16>(dst, src, count, rows, non_temporal);
        case 32: return deinterleave_whole<32>(dst, src, count, rows, non_temporal);
        case 64: return deinterleave_whole<64>(dst, src, count, rows, non_temporal);
        default: return 0;
    }
}

}  // namespace

void deinterleave(std::byte* const* dst, const std::byte* src, int count, std::size_t width, std::int64_t rows,
                  bool non_temporal) {
    const auto step = static_cast<std::ptrdiff_t>(width);
    deinterleave_rows(dst, src, count, step, deinterleave_any_width(dst, src, count, width, rows, non_temporal), rows);
}

}  // namespace dovetail::DOVETAIL_ISA
