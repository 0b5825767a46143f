#include "copy/strided_copy.h"

#include <algorithm>

#include "copy/strategy.h"

namespace dovetail::copying {
namespace {

std::size_t bytes_of(const CopyRegion& region) {
    std::size_t bytes = region.itemsize;
    for (const CopyAxis& axis : region.axes) bytes *= static_cast<std::size_t>(axis.size);
    return bytes;
}

bool can_merge(const CopyAxis& outer, const CopyAxis& inner) {
    return outer.dst == inner.dst * inner.size && outer.src == inner.src * inner.size;
}

// Reverses an axis with a negative destination stride; the result of the copy is the same.
void make_ascending(CopyAxis& axis, NormalizedCopy& normalized) {
    if (axis.dst >= 0) return;
    normalized.dst.offset += (axis.size - 1) * axis.dst;
    normalized.src.offset += (axis.size - 1) * axis.src;
    axis.dst = -axis.dst;
    axis.src = -axis.src;
}

// Returns the bytes of a task. There are at least eight tasks, so that threads finish together, and each is large enough to reach
// memory bandwidth. Within the cache tasks are smaller: the addresses that two threads access at a time are then close together,
// which matters where the data hardly fits into the cache.
std::int64_t task_bytes_for(std::size_t bytes, bool non_temporal) {
    const auto eighth = static_cast<std::int64_t>(bytes / 8);
    return std::clamp<std::int64_t>(eighth, 32 * 1024, non_temporal ? 1024 * 1024 : 256 * 1024);
}

// Bytes of the last-level cache if it is at least twice as fast as memory; else 0. This holds for AMD processors with AVX-512,
// where few cores share it. On others many cores share it, or it is little faster than memory.
std::size_t fast_last_level_cache_bytes() {
#if defined(__x86_64__) && defined(__GNUC__)
    if (!__builtin_cpu_is("amd") || !__builtin_cpu_supports("avx512f")) return 0;
    constexpr unsigned kCacheProperties = 0x8000001D, kThirdLevel = 3;
    unsigned a = kCacheProperties, b = 0, c = kThirdLevel, d = 0;
    __asm__("cpuid" : "+a"(a), "+b"(b), "+c"(c), "+d"(d));
    const std::size_t ways = (b >> 22) + 1, partitions = (b >> 12 & 0x3FF) + 1, line = (b & 0xFFF) + 1, sets = std::size_t{c} + 1;
    return (a >> 5 & 7) == 3 ? ways * partitions * line * sets : 0;
#else
    return 0;
#endif
}

}  // namespace

// Below this threshold, source and destination together about fit into the last-level cache.
std::size_t non_temporal_threshold() {
    static const std::size_t from = std::max(kMinNonTemporalBytes, fast_last_level_cache_bytes() / 16 * 9);
    return from;
}

bool prefetches_within_pages() {
    static const bool does = fast_last_level_cache_bytes() != 0;
    return does;
}

std::int64_t NormalizedCopy::rows() const {
    std::int64_t rows = 1;
    for (const CopyAxis& axis : axes) rows *= axis.size;
    return rows;
}

NormalizedCopy normalize(const CopyRegion& region) {
    const auto itemsize = static_cast<std::int64_t>(region.itemsize);
    NormalizedCopy normalized{region.dst, region.src, {}, itemsize, itemsize};
    std::vector<CopyAxis> axes;
    for (CopyAxis axis : region.axes) {
        if (axis.size == 1) continue;
        make_ascending(axis, normalized);
        axes.push_back(axis);
    }
    std::stable_sort(axes.begin(), axes.end(), [](const CopyAxis& a, const CopyAxis& b) { return a.dst > b.dst; });
    for (const CopyAxis& axis : axes) {
        if (!normalized.axes.empty() && can_merge(normalized.axes.back(), axis))
            normalized.axes.back() = {normalized.axes.back().size * axis.size, axis.dst, axis.src};
        else
            normalized.axes.push_back(axis);
    }
    if (!normalized.axes.empty() && normalized.axes.back().dst == itemsize && normalized.axes.back().src == itemsize) {
        normalized.run = normalized.axes.back().size * itemsize;
        normalized.axes.pop_back();
    }
    return normalized;
}

CopyPlan::CopyPlan(std::vector<CopyRegion> regions) {
    std::vector<NormalizedCopy> normalized_regions;
    for (const CopyRegion& region : regions) {
        const std::size_t bytes = bytes_of(region);
        bytes_ += bytes;
        if (bytes != 0) normalized_regions.push_back(normalize(region));
    }
    const bool non_temporal = bytes_ >= non_temporal_threshold();
    choose_strategies(normalized_regions, {non_temporal, task_bytes_for(bytes_, non_temporal)});
    const bool long_runs =
        std::all_of(strategies_.begin(), strategies_.end(), [](const auto& strategy) { return strategy->has_long_runs(); });
    threads_from_ = long_runs ? kMinThreadedBytesLongRuns : kMinThreadedBytes;
    warm_threads_from_ = long_runs ? kMinWarmThreadedBytesLongRuns : kMinThreadedBytes;
    std::int64_t tasks = 0;
    for (const auto& strategy : strategies_) tasks_.push_back(tasks += strategy->tasks());
}

void CopyPlan::choose_strategies(std::vector<NormalizedCopy>& normalized_regions, const CopyOptions& options) {
    const auto strided = std::stable_partition(normalized_regions.begin(), normalized_regions.end(),
                                               [](const NormalizedCopy& normalized) { return normalized.axes.empty(); });
    const std::vector<NormalizedCopy> blocks(normalized_regions.begin(), strided), others(strided, normalized_regions.end());
    if (!blocks.empty()) strategies_.push_back(make_contiguous_copy(blocks, options));
    if (auto table = make_column_copy(others, options)) {
        strategies_.push_back(std::move(table));
        return;
    }
    for (const NormalizedCopy& normalized : others) {
        auto tiles = make_transpose(normalized, options);
        strategies_.push_back(tiles ? std::move(tiles) : make_row_copy(normalized, options));
    }
}

CopyPlan::~CopyPlan() = default;
CopyPlan::CopyPlan(CopyPlan&&) noexcept = default;

void CopyPlan::run_task(std::byte* const* bases, std::int64_t task) const {
    const auto strategy = static_cast<std::size_t>(std::upper_bound(tasks_.begin(), tasks_.end(), task) - tasks_.begin());
    strategies_[strategy]->run(bases, strategy == 0 ? task : task - tasks_[strategy - 1]);
}

void CopyPlan::run(std::byte* const* bases, ThreadPool* pool) const {
    if (strategies_.empty()) return;
    if (pool != nullptr && bytes_ >= warm_threads_from_ && (bytes_ >= threads_from_ || pool->is_warm())) {
        pool->parallel_for(tasks_.back(), [&](std::int64_t task, int) { run_task(bases, task); });
        return;
    }
    for (const auto& strategy : strategies_)
        for (std::int64_t task = 0; task < strategy->tasks(); ++task) strategy->run(bases, task);
}

const char* CopyPlan::name() const { return strategies_.empty() ? "nothing" : strategies_.front()->name(); }

}  // namespace dovetail::copying
