// Copies contiguous rows; the copies of short rows are inlined.
#include "copy/simd/byte_shuffles.h"
#include "copy/simd/copy_kernels.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace dovetail::DOVETAIL_ISA {
namespace {

template <std::size_t Bytes>
inline void copy_bytes(std::byte* dst, const std::byte* src) {
    unsigned char buffered[Bytes];
    std::memcpy(buffered, src, Bytes);
    std::memcpy(dst, buffered, Bytes);
}

// Copies elements, four at a time so that loads need not wait for stores.
template <std::size_t Bytes>
void copy_elements(std::byte* dst, std::ptrdiff_t dst_step, const std::byte* src, std::ptrdiff_t src_step, std::int64_t rows) {
    std::int64_t i = 0;
    for (; i + 4 <= rows; i += 4, dst += 4 * dst_step, src += 4 * src_step) {
        unsigned char elements[4][Bytes];
        for (int j = 0; j < 4; ++j) std::memcpy(elements[j], src + j * src_step, Bytes);
        for (int j = 0; j < 4; ++j) std::memcpy(dst + j * dst_step, elements[j], Bytes);
    }
    for (; i < rows; ++i, dst += dst_step, src += src_step) copy_bytes<Bytes>(dst, src);
}

// Copies rows of Unit to 2 * Unit bytes as two units, one at either end of the row; the two units may overlap.
template <std::size_t Unit>
void copy_pairs(std::byte* dst, std::ptrdiff_t dst_step, const std::byte* src, std::ptrdiff_t src_step, std::int64_t rows,
                std::size_t bytes) {
    const std::size_t last = bytes - Unit;
    for (; rows > 0; --rows, dst += dst_step, src += src_step) {
        copy_bytes<Unit>(dst, src);
        copy_bytes<Unit>(dst + last, src + last);
    }
}

void copy_vectors(std::byte* dst, std::ptrdiff_t dst_step, const std::byte* src, std::ptrdiff_t src_step, std::int64_t rows,
                  std::size_t bytes) {
    const std::size_t last = bytes - kVector;
    for (; rows > 0; --rows, dst += dst_step, src += src_step) {
        for (std::size_t i = 0; i < last; i += kVector) copy_bytes<kVector>(dst + i, src + i);
        copy_bytes<kVector>(dst + last, src + last);
    }
}

void copy_long(std::byte* dst, std::ptrdiff_t dst_step, const std::byte* src, std::ptrdiff_t src_step, std::int64_t rows,
               std::size_t bytes) {
    for (; rows > 0; --rows, dst += dst_step, src += src_step) std::memcpy(dst, src, bytes);
}

// Repeats one element (a source stride of zero) contiguously.
template <std::size_t Bytes>
void fill_elements(std::byte* dst, const std::byte* src, std::int64_t rows) {
    unsigned char element[Bytes];
    std::memcpy(element, src, Bytes);
    for (std::int64_t i = 0; i < rows; ++i) std::memcpy(dst + i * static_cast<std::int64_t>(Bytes), element, Bytes);
}

template <std::size_t Bytes>
void copy_any_elements(std::byte* dst, std::ptrdiff_t dst_step, const std::byte* src, std::ptrdiff_t src_step,
                       std::int64_t rows) {
    constexpr auto bytes = static_cast<std::ptrdiff_t>(Bytes);
    if (dst_step == bytes && src_step == 0) return fill_elements<Bytes>(dst, src, rows);
    if (dst_step == bytes) return copy_elements<Bytes>(dst, bytes, src, src_step, rows);
    if (src_step == bytes) return copy_elements<Bytes>(dst, dst_step, src, bytes, rows);
    copy_elements<Bytes>(dst, dst_step, src, src_step, rows);
}

}  // namespace

void copy_rows(std::byte* dst, std::ptrdiff_t dst_step, const std::byte* src, std::ptrdiff_t src_step, std::int64_t rows,
               std::size_t bytes) {
    const auto step = static_cast<std::ptrdiff_t>(bytes);
    if (dst_step == step && src_step == step) return copy_long(dst, 0, src, 0, 1, bytes * static_cast<std::size_t>(rows));
    switch (bytes) {
        case 1: return copy_any_elements<1>(dst, dst_step, src, src_step, rows);
        case 2: return copy_any_elements<2>(dst, dst_step, src, src_step, rows);
        case 4: return copy_any_elements<4>(dst, dst_step, src, src_step, rows);
        case 8: return copy_any_elements<8>(dst, dst_step, src, src_step, rows);
        case 16: return copy_any_elements<16>(dst, dst_step, src, src_step, rows);
        case 3: return copy_pairs<2>(dst, dst_step, src, src_step, rows, bytes);
        default: break;
    }
    if (bytes < 8) return copy_pairs<4>(dst, dst_step, src, src_step, rows, bytes);
    if (bytes < 16) return copy_pairs<8>(dst, dst_step, src, src_step, rows, bytes);
    if (bytes <= 32) return copy_pairs<16>(dst, dst_step, src, src_step, rows, bytes);
    if (bytes <= 64 && kVector >= 32) return copy_pairs<32>(dst, dst_step, src, src_step, rows, bytes);
    if (bytes <= 512) return copy_vectors(dst, dst_step, src, src_step, rows, bytes);
    copy_long(dst, dst_step, src, src_step, rows, bytes);
}

void copy_columns(const ColumnCopy* columns, int count, std::int64_t rows) {
    for (std::int64_t row = 0; row < rows; ++row)
        for (int k = 0; k < count; ++k) {
            const ColumnCopy& column = columns[k];
            std::byte* const dst = column.dst + row * column.dst_step;
            const std::byte* const src = column.src + row * column.src_step;
            const std::size_t last = column.bytes - 64;
            for (std::size_t i = 0; i < last; i += 64) {
                __builtin_prefetch(src + column.src_step + i);
                copy_bytes<64>(dst + i, src + i);
            }
            copy_bytes<64>(dst + last, src + last);
        }
}

namespace {

// Stores a whole aligned cache line. A non-temporal store of a partial line would cost many times as much.
inline void stream_line(std::byte* dst, const std::byte* src) {
#if defined(__AVX512F__)
    _mm512_stream_si512(reinterpret_cast<__m512i*>(dst), _mm512_loadu_si512(src));
#elif defined(__AVX2__)
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(src));
    const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(src + 32));
    _mm256_stream_si256(reinterpret_cast<__m256i*>(dst), a);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(dst + 32), b);
#elif defined(__SSE2__)
    __m128i buffered[4];
    for (int i = 0; i < 4; ++i) buffered[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(src + 16 * i));
    for (int i = 0; i < 4; ++i) _mm_stream_si128(reinterpret_cast<__m128i*>(dst + 16 * i), buffered[i]);
#else
    std::memcpy(dst, src, 64);
#endif
}

}  // namespace

void stream(std::byte* dst, const std::byte* src, std::size_t bytes) {
    std::size_t i = (0 - reinterpret_cast<std::uintptr_t>(dst)) % 64;
    if (i > bytes) i = bytes;
    std::memcpy(dst, src, i);
    for (; i + 64 <= bytes; i += 64) stream_line(dst + i, src + i);
    std::memcpy(dst + i, src + i, bytes - i);
}

#if defined(__AVX512BW__)
namespace {

inline __mmask64 first_bytes(std::size_t count) { return (std::uint64_t{1} << count) - 1; }

}  // namespace

// A line that one run ends and the next one begins is assembled in a register: a load of recently stored bytes would wait for all
// earlier stores.
void stream_runs(std::byte* dst, const std::byte* const* src, const std::size_t* bytes, int runs, int prefetch_runs) {
    std::size_t buffered = reinterpret_cast<std::uintptr_t>(dst) % 64;
    __mmask64 foreign = first_bytes(buffered);  // bytes of the first line that belong to other data
    dst -= buffered;
    __m512i line = _mm512_setzero_si512();
    for (int run = 0; run < runs; ++run) {
        const std::byte* from = src[run];
        std::size_t remaining = bytes[run];
        if (buffered != 0) {
            line = _mm512_mask_loadu_epi8(line, ~first_bytes(buffered), from - buffered);
            if (foreign != 0)
                _mm512_mask_storeu_epi8(dst, ~foreign, line);
            else
                _mm512_stream_si512(reinterpret_cast<__m512i*>(dst), line);
            foreign = 0;
            dst += 64;
            from += 64 - buffered;
            remaining -= 64 - buffered;
        }
        const std::ptrdiff_t next = prefetch_runs != 0 && run + prefetch_runs < runs ? src[run + prefetch_runs] - src[run] : 0;
        for (; remaining >= 64; remaining -= 64, dst += 64, from += 64) {
            if (next != 0) __builtin_prefetch(from + next, 0, 0);
            stream_line(dst, from);
        }
        buffered = remaining;
        line = _mm512_maskz_loadu_epi8(first_bytes(buffered), from);
    }
    _mm512_mask_storeu_epi8(dst, first_bytes(buffered), line);
}
#else
void stream_runs(std::byte* dst, const std::byte* const* src, const std::size_t* bytes, int runs, int) {
    for (int run = 0; run < runs; dst += bytes[run], ++run) stream(dst, src[run], bytes[run]);
}
#endif

void store_fence() {
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

}  // namespace dovetail::DOVETAIL_ISA
