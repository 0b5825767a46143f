// What the memory allows a transpose: lines of 64 bytes go where the transposes of bench/arrays.py read and write them, without any
// transposition. Two threads; each copies short runs of many rows into its L1 while it sends pairs of lines past it. Then the same with
// longer runs, into L2, and each row prefetched a page before. Beside them a plain copy of as many bytes. Prints the copy's
// time over the others'; medians of interleaved runs.
//
//     g++ -O2 -mavx2 -std=c++17 -pthread bench/lines.cpp -o build/lines && build/lines
#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>
#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace {

constexpr std::int64_t kBytes = 64 << 20, kLine = 64, kPage = 4096, kNear = 16 * 1024, kStage = 128 * 1024;
using Axes = std::vector<int>;

inline void fetch(char* to, const char* from) {
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 32));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), a);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 32), b);
}

inline void send(char* to, const char* from) {
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 32));
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), a);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + 32), b);
}

// An array of shape (64 / width, 32, 32, 32, 32). Rows are contiguous in the destination, columns in the source; of both, and of what is
// left, the innermost axis comes first.
struct Transpose {
    int width;
    std::vector<int> order;
    Axes rows, columns, others;
    std::int64_t sizes[5], src[5], dst[5];

    Transpose(int width, std::vector<int> order, Axes rows, Axes columns, Axes others)
        : width(width), order(order), rows(rows), columns(columns), others(others) {
        std::int64_t from = width, to = width;
        for (int i = 4; i >= 0; from *= sizes[i--]) sizes[i] = i == 0 ? 64 / width : 32, src[i] = from;
        for (int i = 4; i >= 0; to *= sizes[order[i--]]) dst[order[i]] = to;
    }

    std::vector<std::int64_t> offsets(const Axes& axes, const std::int64_t* strides) const {
        std::vector<std::int64_t> all = {0};
        for (const int axis : axes) {
            std::vector<std::int64_t> next;
            for (std::int64_t i = 0; i < sizes[axis]; ++i)
                for (const std::int64_t at : all) next.push_back(at + i * strides[axis]);
            all = next;
        }
        return all;
    }
};

// Half of the work: rows in groups that make up two lines, runs of `run` bytes of each, the row `ahead` further on prefetched.
void move(const Transpose& it, char* dst, const char* src, int half, std::int64_t run, std::int64_t ahead) {
    const auto rows = it.offsets(it.rows, it.src), columns = it.offsets(it.columns, it.dst);
    const auto from = it.offsets(it.others, it.src), to = it.offsets(it.others, it.dst);
    const std::int64_t group = 2 * kLine / it.width, groups = static_cast<std::int64_t>(rows.size()) / group, some = run / it.width;
    const std::int64_t blocks = static_cast<std::int64_t>(columns.size()) / some, all = static_cast<std::int64_t>(from.size()) * groups * blocks;
    alignas(64) thread_local char stages[2][kStage];
    char* sent = nullptr;
    const std::int64_t* places = nullptr;
    for (std::int64_t n = half * all / 2; n < (half + 1) * all / 2; ++n) {
        const std::int64_t block = n % blocks, first = n / blocks % groups * group, other = n / blocks / groups;
        const char* const begin = src + from[static_cast<std::size_t>(other)] + block * run;
        char* stage = stages[n % 2];
        const char* ready = stages[1 - n % 2];
        std::int64_t column = 0;
        for (std::int64_t row = first; row < first + group; ++row) {
            const char* const from_row = begin + rows[static_cast<std::size_t>(row)];
            const char* const asked = begin + rows[static_cast<std::size_t>(std::min(row + ahead, first + group - 1))];
            // A run that begins within a line ends in one more.
            if (asked != from_row) _mm_prefetch(asked + run - 1, _MM_HINT_T0);
            for (std::int64_t i = 0; i < run; i += kLine, stage += kLine) {
                if (asked != from_row) _mm_prefetch(asked + i, _MM_HINT_T0);
                fetch(stage, from_row + i);
                if (sent == nullptr || (stage - stages[n % 2]) % (2 * kLine) == 0) continue;
                for (int line = 0; line < 2; ++line, ready += kLine) send(sent + places[column] + line * kLine, ready);
                ++column;
            }
        }
        sent = dst + to[static_cast<std::size_t>(other)] + first * it.width;
        places = &columns[static_cast<std::size_t>(block * some)];
    }
    _mm_sfence();
}

void copy(char* dst, const char* src, int half) {
    for (std::int64_t i = half * kBytes / 2; i < (half + 1) * kBytes / 2; i += kLine) send(dst + i, src + i);
    _mm_sfence();
}

char* memory(std::int64_t beyond) {
    auto* const at = static_cast<char*>(std::aligned_alloc(2 << 20, kBytes + (2 << 20)));
#if defined(__linux__)
    madvise(at, kBytes + (2 << 20), MADV_HUGEPAGE);
#endif
    std::memset(at, 1, kBytes + (2 << 20));
    return at + beyond;
}

double seconds(const std::function<void(int)>& work) {
    std::thread other([&] { work(1); });
    const auto start = std::chrono::steady_clock::now();
    work(0);
    other.join();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> times) {
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

}  // namespace

int main() {
    // Arrays of numpy begin 16 bytes after a page does.
    char *const dst = memory(0), *const src = memory(16);
    for (const int width : {4, 2, 1, 8}) {
        const Transpose all[] = {{width, {4, 3, 2, 1, 0}, {0, 1}, {4, 3}, {2}}, {width, {0, 3, 4, 1, 2}, {2, 1}, {4, 3}, {0}}};
        for (const Transpose& it : all) {
            // Columns that follow each other in the source: no run is longer.
            const std::int64_t most = kPage * width / 4;
            double near = 0, far = 0;
            for (std::int64_t run = 128; run <= std::min(most, kStage * width / 128); run *= 2) {
                std::vector<double> plain, turned, asked;
                for (int i = 0; i < 11; ++i) {
                    plain.push_back(seconds([&](int half) { copy(dst, src, half); }));
                    if (run <= kNear * width / 128) turned.push_back(seconds([&](int half) { move(it, dst, src, half, run, 0); }));
                    asked.push_back(seconds([&](int half) { move(it, dst, src, half, run, std::max<std::int64_t>(1, kPage / run)); }));
                }
                if (!turned.empty()) near = std::max(near, median(plain) / median(turned));
                far = std::max(far, median(plain) / median(asked));
            }
            std::printf("%d bytes (%d, %d, %d, %d, %d): %.0f%% of the copy, prefetched %.0f%%\n", width, it.order[0], it.order[1],
                        it.order[2], it.order[3], it.order[4], near * 100, far * 100);
        }
    }
}
