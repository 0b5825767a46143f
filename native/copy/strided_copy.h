// Any number of strided copies as one job: planned once, run on all threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "thread_pool.h"

namespace dovetail::moving {

// One axis of a copy: how many elements, and how far apart they lie, in bytes (any sign, zero repeats a source).
struct Stride {
    std::int64_t size;
    std::int64_t dst;
    std::int64_t src;
};

// Where the first element lies: an offset from a base, or from nothing where it is a constant.
struct Place {
    int base = 0;
    std::int64_t offset = 0;
    const std::byte* constant = nullptr;

    std::byte* in(std::byte* const* bases) const { return constant ? const_cast<std::byte*>(constant) + offset : bases[base] + offset; }
};

struct Piece {
    Place dst;
    Place src;
    std::vector<Stride> axes;
    std::size_t itemsize;
};

// What the pieces of one job have in common decides how it is done (movement.cpp chooses; the others do).
class Walk;
struct Shape;
struct Manner;

// From so many bytes on, in all, destinations are written past the cache.
std::size_t past_cache_from();

// Whether the processor is known to fetch ahead within a page only, and to have a second cache to hold what many rows bring in.
bool fetches_within_pages();

// Pieces may be done in any order and at once: no destination overlaps another one or a source.
class Movement {
public:
    explicit Movement(std::vector<Piece> pieces);
    ~Movement();
    Movement(Movement&&) noexcept;

    std::size_t bytes() const { return bytes_; }
    // A pool may be absent.
    void run(std::byte* const* bases, Pool* pool) const;
    // How it is done, for a plan: "rows", "tiles", "lanes" ...
    const char* name() const;

private:
    void choose_walks(std::vector<Shape>& shapes, const Manner& manner);
    void run_task(std::byte* const* bases, std::int64_t task) const;

    std::size_t bytes_ = 0;
    std::size_t threads_from_ = 0, warm_threads_from_ = 0;
    std::vector<std::unique_ptr<Walk>> walks_;
    std::vector<std::int64_t> tasks_;  // up to and including each walk
};

}  // namespace dovetail::moving
