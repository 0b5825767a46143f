// The strategies of strided copies. Each is divided into tasks that may run in any order on any thread.
#pragma once

#include <memory>
#include <vector>

#include "copy/copy_kernels.h"
#include "copy/strided_copy.h"
#include "int_math.h"

namespace dovetail::copying {

// Size of a block that stays in L1 while all columns of the block are processed.
constexpr std::int64_t kL1BlockBytes = 16 * 1024;
// Block size for write-combined non-temporal stores; small enough that loads of the next block overlap the stores.
constexpr std::int64_t kWriteCombiningBytes = 4 * 1024;
// Rows of at least this many bytes are written one by one with non-temporal stores: few of their cache lines are partial.
constexpr std::int64_t kMinStreamedRow = 1024;
// Bytes of a whole copy from which its stores are non-temporal, unless the last-level cache is known to be larger
// (non_temporal_threshold).
constexpr std::size_t kMinNonTemporalBytes = 8 * 1024 * 1024;
// Bytes of a whole copy below which waking other threads does not pay. Contiguous copies run at the speed of the cache; all
// other copies are slower. Threads that are awake cost less, and each thread adds the cache of its core.
constexpr std::size_t kMinThreadedBytes = 192 * 1024;
constexpr std::size_t kMinThreadedBytesLongRuns = 768 * 1024, kMinWarmThreadedBytesLongRuns = 384 * 1024;

// Options of a copy, equal for all its strategies.
struct CopyOptions {
    bool non_temporal;
    std::int64_t task_bytes;
};

class CopyStrategy {
public:
    virtual ~CopyStrategy() = default;
    virtual std::int64_t tasks() const = 0;
    virtual void run(std::byte* const* bases, std::int64_t task) const = 0;
    virtual const char* name() const = 0;
    virtual bool has_long_runs() const { return false; }
};

// A region with its axes sorted by descending destination stride and adjacent axes merged. `run` is the number of bytes that are
// contiguous on both sides; they belong to no axis. No axis has size 1 or a negative destination stride.
struct NormalizedCopy {
    Location dst;
    Location src;
    std::vector<CopyAxis> axes;
    std::int64_t run;
    std::int64_t itemsize;

    std::int64_t rows() const;
};
NormalizedCopy normalize(const CopyRegion& piece);

// Copies row by row, in the order of the destination (rows.cpp).
std::unique_ptr<CopyStrategy> make_row_copy(const NormalizedCopy& normalized, const CopyOptions& options);

// Copies any number of contiguous regions (contiguous.cpp).
std::unique_ptr<CopyStrategy> make_contiguous_copy(const std::vector<NormalizedCopy>& regions, const CopyOptions& options);

// Copies the rows of several regions together (interleave.cpp). Null unless all regions have the same number of rows.
std::unique_ptr<CopyStrategy> make_column_copy(const std::vector<NormalizedCopy>& regions, const CopyOptions& options);

// Transposes in tiles (transpose_tiled.cpp). Null unless the contiguous axes of source and destination differ.
std::unique_ptr<CopyStrategy> make_transpose(const NormalizedCopy& normalized, const CopyOptions& options);

// Transposes with non-temporal stores of whole cache lines (transpose_streaming.cpp); returns `fallback` where that is
// impossible. Axis `src_inner` is contiguous in the source.
std::unique_ptr<CopyStrategy> make_streaming_transpose(const NormalizedCopy& normalized, std::size_t src_inner,
                                                       std::unique_ptr<CopyStrategy> fallback, const CopyOptions& options);

// Transposes batches of small matrices (transpose_batched.cpp); with non-temporal stores, only matrices that are consecutive in
// the destination. Null if the region has no such batch.
std::unique_ptr<CopyStrategy> make_batched_transpose(const NormalizedCopy& normalized, std::size_t dst_inner,
                                                     std::size_t src_inner, const CopyOptions& options);

// Copies runs to consecutive addresses with non-temporal stores.
class RunStream {
public:
    explicit RunStream(std::byte* dst) : dst_(dst) {}
    void add(const std::byte* src, std::int64_t bytes) {
        src_[count_] = src;
        bytes_[count_] = static_cast<std::size_t>(bytes);
        if (++count_ == kMaxRuns) flush();
    }
    void flush() {
        if (count_ != 0) copy_kernels().stream_runs(dst_, src_, bytes_, count_, prefetch_runs());
        for (int i = 0; i < count_; ++i) dst_ += bytes_[i];
        count_ = 0;
    }

private:
    static constexpr int kMaxRuns = 64, kMaxPrefetchRuns = 4;

    // The prefetch distance in runs: about a page.
    int prefetch_runs() const {
        if (!prefetches_within_pages()) return 0;
        return static_cast<int>(max(2, min(kMaxPrefetchRuns, ceil_div(kPage, static_cast<std::int64_t>(bytes_[0])))));
    }

    std::byte* dst_;
    int count_ = 0;
    const std::byte* src_[kMaxRuns];
    std::size_t bytes_[kMaxRuns];
};

// Copies rows with non-temporal stores where their length allows it.
void stream_rows(std::byte* dst, std::ptrdiff_t dst_step, const std::byte* src, std::ptrdiff_t src_step, std::int64_t rows,
                 std::int64_t bytes);

}  // namespace dovetail::copying
