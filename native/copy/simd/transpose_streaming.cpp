// Transposes with non-temporal stores: one staged block is transposed and stored in whole lines while the next one is loaded.
#include "copy/simd/byte_shuffles.h"
#include "copy/simd/copy_kernels.h"

namespace dovetail::DOVETAIL_ISA {
namespace {

constexpr int kLineVectors = static_cast<int>(64 / kVector);

// Copies a run of each row of a block into a staging buffer, one cache line at a time.
class StagingLoader {
public:
    explicit StagingLoader(const StagingLoad& block)
        : src_(block.src), row_(block.row_offsets), end_(block.row_offsets + block.rows), prefetch_rows_(block.prefetch_rows),
          prefetch_end_(block.prefetch_rows != 0 ? block.row_offsets + block.known_rows - block.prefetch_rows
                                                 : block.row_offsets),
          last_(block.bytes - 64), step_(block.step), to_(block.staging) {}

    // Copies the next `lines` cache lines of the block, or fewer at the end of the block.
    inline __attribute__((always_inline)) void load_lines(int lines) {
        for (; lines > 0 && row_ != end_; --lines) {
            // The last line of a run may overlap the one before it.
            const std::int64_t offset = offset_ < last_ ? offset_ : last_;
            if (row_ < prefetch_end_) {
                const std::byte* const target = src_ + row_[prefetch_rows_] + offset;
                __builtin_prefetch(target);
                // A run that begins within a line ends in one more line, which no other prefetch covers.
                if (offset == last_) __builtin_prefetch(target + 63);
            }
            Vector<kVector> vectors[kLineVectors];
            for (int j = 0; j < kLineVectors; ++j)
                vectors[j] = load<kVector>(src_ + *row_ + offset + j * static_cast<int>(kVector));
            for (int j = 0; j < kLineVectors; ++j) store<kVector>(to_ + offset + j * static_cast<int>(kVector), vectors[j]);
            offset_ += 64;
            if (offset < last_) continue;
            offset_ = 0;
            to_ += step_;
            ++row_;
        }
    }

    void load_all() {
        while (row_ != end_) load_lines(64);
    }

private:
    const std::byte* const src_;
    const std::ptrdiff_t* row_;
    const std::ptrdiff_t* const end_;
    const std::int64_t prefetch_rows_;
    const std::ptrdiff_t* const prefetch_end_;  // end of the rows for which a later row is prefetched
    const std::int64_t last_;
    const std::ptrdiff_t step_;
    std::byte* to_;
    std::int64_t offset_ = 0;
};

// Transposes 16 / Width columns, each of which fills `Lines` cache lines, and stores them one after the other. After each column,
// `Lines` lines of the next block are loaded into the staging buffer.
template <int Width, int Lines>
inline __attribute__((always_inline)) void store_columns(std::byte* dst, std::ptrdiff_t dst_step, const std::byte* src,
                                                         std::ptrdiff_t src_step, StagingLoader& loader) {
    constexpr int columns = 16 / Width, tile_rows = static_cast<int>(kVector) / Width, count = Lines * kLineVectors;
    Vector<kVector> vectors[count][columns];
#pragma GCC unroll 8
    for (int j = 0; j < count; ++j) {
#pragma GCC unroll 64
        for (int i = 0; i < columns; ++i)
            vectors[j][i] = load_lanes<kVector, columns>(src + (j * tile_rows + i) * src_step, src_step);
        perfect_shuffles<kVector, Width, columns, log2_of(columns)>(vectors[j]);
    }
#pragma GCC unroll 64
    for (int i = 0; i < columns; ++i) {
#pragma GCC unroll 8
        for (int j = 0; j < count; ++j)
            store_vector<kVector, true>(dst + i * dst_step + j * static_cast<int>(kVector), vectors[j][i]);
        loader.load_lines(Lines);
    }
}

template <int Width, int Lines>
void transpose_block(const StagedTranspose& block, const StagingLoad& next) {
    constexpr std::int64_t tile_columns = 16 / Width;
    const std::int64_t steps = (block.columns + tile_columns - 1) / tile_columns;
    const std::int64_t slow = block.columns_first ? block.outer : steps, fast = block.columns_first ? steps : block.outer;
    StagingLoader loader(next);
    for (std::int64_t i = 0; i < slow; ++i)
        for (std::int64_t j = 0; j < fast; ++j) {
            const std::int64_t o = block.columns_first ? i : j, c = (block.columns_first ? j : i) * tile_columns;
            // The last columns may overlap those before them.
            const std::int64_t column = c + tile_columns <= block.columns ? c : block.columns - tile_columns;
            store_columns<Width, Lines>(block.dst + o * block.outer_step + column * block.step, block.step,
                                        block.staging + (o * block.columns + column) * Width, block.staging_step, loader);
        }
    loader.load_all();
}

template <int Width>
void transpose_lines(const StagedTranspose& block, const StagingLoad& next) {
    if (block.lines == 2) return transpose_block<Width, 2>(block, next);
    transpose_block<Width, 1>(block, next);
}

}  // namespace

void transpose_staged(const StagedTranspose& block, const StagingLoad& next, std::size_t width) {
    if (block.lines == 0) return StagingLoader(next).load_all();
    switch (width) {
        case 1: return transpose_lines<1>(block, next);
        case 2: return transpose_lines<2>(block, next);
        case 4: return transpose_lines<4>(block, next);
        default: return transpose_lines<8>(block, next);
    }
}

}  // namespace dovetail::DOVETAIL_ISA
