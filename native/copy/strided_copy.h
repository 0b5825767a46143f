// Any number of strided copies as one job, planned once and run on the threads of a pool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "thread_pool.h"

namespace dovetail::copying {

// One axis of a copy: its size, and its strides in bytes. Strides have any sign; a source stride of zero repeats one element.
struct CopyAxis {
    std::int64_t size;
    std::int64_t dst;
    std::int64_t src;
};

// The address of the first element of a region: an offset from a base pointer, or from a constant.
struct Location {
    int base = 0;
    std::int64_t offset = 0;
    const std::byte* constant = nullptr;

    std::byte* resolve(std::byte* const* bases) const {
        return constant ? const_cast<std::byte*>(constant) + offset : bases[base] + offset;
    }
};

struct CopyRegion {
    Location dst;
    Location src;
    std::vector<CopyAxis> axes;
    std::size_t itemsize;
};

// The strategies that a plan chooses among (strategy.h).
class CopyStrategy;
struct NormalizedCopy;
struct CopyOptions;

// Bytes of a whole copy from which its stores are non-temporal.
std::size_t non_temporal_threshold();

// True if the hardware prefetcher is known not to cross pages, and the L2 cache to hold what explicit prefetches of many rows
// bring in.
bool prefetches_within_pages();

// A plan for the copies of several regions. The regions may be copied in any order and concurrently: no destination overlaps
// another destination or a source.
class CopyPlan {
public:
    explicit CopyPlan(std::vector<CopyRegion> regions);
    ~CopyPlan();
    CopyPlan(CopyPlan&&) noexcept;

    std::size_t bytes() const { return bytes_; }
    // `pool` may be null: the copy is then single-threaded.
    void run(std::byte* const* bases, ThreadPool* pool) const;
    // The name of the strategy in a plan: "rows", "tiled transpose", "interleave" ...
    const char* name() const;

private:
    void choose_strategies(std::vector<NormalizedCopy>& normalized_regions, const CopyOptions& options);
    void run_task(std::byte* const* bases, std::int64_t task) const;

    std::size_t bytes_ = 0;
    std::size_t threads_from_ = 0, warm_threads_from_ = 0;
    std::vector<std::unique_ptr<CopyStrategy>> strategies_;
    std::vector<std::int64_t> tasks_;  // cumulative task count, by strategy
};

}  // namespace dovetail::copying
