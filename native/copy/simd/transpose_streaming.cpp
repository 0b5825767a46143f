// Transposes past the cache: one block is turned and sent in whole lines while the next one comes in.
#include "copy/simd/byte_shuffles.h"
#include "copy/simd/copy_kernels.h"

namespace dovetail::DOVETAIL_ISA {
namespace {

constexpr int kLineVectors = static_cast<int>(64 / kVector);

// Runs of rows on their way into a stage, line by line.
class Fetching {
public:
    explicit Fetching(const Fetched& block)
        : src_(block.src), row_(block.row), end_(block.row + block.rows), ahead_(block.ahead),
          asked_(block.ahead != 0 ? block.row + block.places - block.ahead : block.row), last_(block.bytes - 64), step_(block.step), to_(block.stage) {}

    // Some lines, as far as there are any.
    inline __attribute__((always_inline)) void take(int lines) {
        for (; lines > 0 && row_ != end_; --lines) {
            // The last line of a run may overlap the one before it.
            const std::int64_t at = at_ < last_ ? at_ : last_;
            if (row_ < asked_) {
                const std::byte* const then = src_ + row_[ahead_] + at;
                __builtin_prefetch(then);
                // A run that begins within a line ends in one more, which nothing else would ask for.
                if (at == last_) __builtin_prefetch(then + 63);
            }
            Vector<kVector> held[kLineVectors];
            for (int j = 0; j < kLineVectors; ++j) held[j] = load<kVector>(src_ + *row_ + at + j * static_cast<int>(kVector));
            for (int j = 0; j < kLineVectors; ++j) store<kVector>(to_ + at + j * static_cast<int>(kVector), held[j]);
            at_ += 64;
            if (at < last_) continue;
            at_ = 0;
            to_ += step_;
            ++row_;
        }
    }

    void take_all() {
        while (row_ != end_) take(64);
    }

private:
    const std::byte* const src_;
    const std::ptrdiff_t* row_;
    const std::ptrdiff_t* const end_;
    const std::int64_t ahead_;
    const std::ptrdiff_t* const asked_;  // the rows before it have one to ask for
    const std::int64_t last_;
    const std::ptrdiff_t step_;
    std::byte* to_;
    std::int64_t at_ = 0;
};

// 16 / Width columns, `Lines` lines of each, one after the other; after each column as many lines come in.
template <int Width, int Lines>
inline __attribute__((always_inline)) void send(std::byte* dst, std::ptrdiff_t dst_step, const std::byte* src, std::ptrdiff_t src_step, Fetching& fetching) {
    constexpr int columns = 16 / Width, high = static_cast<int>(kVector) / Width, count = Lines * kLineVectors;
    Vector<kVector> vectors[count][columns];
#pragma GCC unroll 8
    for (int j = 0; j < count; ++j) {
#pragma GCC unroll 64
        for (int i = 0; i < columns; ++i) vectors[j][i] = load_lanes<kVector, columns>(src + (j * high + i) * src_step, src_step);
        shuffles<kVector, Width, columns, bits(columns)>(vectors[j]);
    }
#pragma GCC unroll 64
    for (int i = 0; i < columns; ++i) {
#pragma GCC unroll 8
        for (int j = 0; j < count; ++j) put_vector<kVector, true>(dst + i * dst_step + j * static_cast<int>(kVector), vectors[j][i]);
        fetching.take(Lines);
    }
}

template <int Width, int Lines>
void turn_all(const Turned& now, const Fetched& next) {
    constexpr std::int64_t wide = 16 / Width;
    const std::int64_t steps = (now.columns + wide - 1) / wide;
    const std::int64_t slow = now.columns_first ? now.outer : steps, fast = now.columns_first ? steps : now.outer;
    Fetching fetching(next);
    for (std::int64_t i = 0; i < slow; ++i)
        for (std::int64_t j = 0; j < fast; ++j) {
            const std::int64_t o = now.columns_first ? i : j, c = (now.columns_first ? j : i) * wide;
            // The last columns may overlap those before them.
            const std::int64_t column = c + wide <= now.columns ? c : now.columns - wide;
            send<Width, Lines>(now.dst + o * now.outer_step + column * now.step, now.step, now.stage + (o * now.columns + column) * Width,
                               now.stage_step, fetching);
        }
    fetching.take_all();
}

template <int Width>
void turn_lines(const Turned& now, const Fetched& next) {
    if (now.lines == 2) return turn_all<Width, 2>(now, next);
    turn_all<Width, 1>(now, next);
}

}  // namespace

void turn(const Turned& now, const Fetched& next, std::size_t width) {
    if (now.lines == 0) return Fetching(next).take_all();
    switch (width) {
        case 1: return turn_lines<1>(now, next);
        case 2: return turn_lines<2>(now, next);
        case 4: return turn_lines<4>(now, next);
        default: return turn_lines<8>(now, next);
    }
}

}  // namespace dovetail::DOVETAIL_ISA
