// The ways to go through a job of movement. Each is cut into tasks that may run in any order on any thread.
#pragma once

#include <memory>
#include <vector>

#include "copy/strided_copy.h"
#include "copy/copy_kernels.h"

namespace dovetail::moving {

// A block of this size stays in the first cache while all that concerns it is done.
constexpr std::int64_t kBlockBytes = 16 * 1024;
// What goes past the cache is put together in pieces of this size: short enough that the processor already reads the next piece while
// it writes this one.
constexpr std::int64_t kStagedBytes = 4 * 1024;
// Rows from here on are written past the cache one by one: few of their lines are begun or ended in the middle.
constexpr std::int64_t kStreamedRow = 1024;
// From here on, in all, destinations are written past the cache, where more of it is not known to be ours (past_cache_from).
constexpr std::size_t kPastCacheFrom = 8 * 1024 * 1024;
// Below this, other threads are not worth the call: plain copies run at the speed of the cache, all else is slower. Threads that are
// awake cost less, and each brings a cache.
constexpr std::size_t kThreadsFrom = 192 * 1024;
constexpr std::size_t kThreadsFromPlain = 768 * 1024, kWarmThreadsFromPlain = 384 * 1024;

// What a job is done with, the same for all its walks.
struct Manner {
    bool past_cache;
    std::int64_t task_bytes;
};

class Walk {
public:
    virtual ~Walk() = default;
    virtual std::int64_t tasks() const = 0;
    virtual void run(std::byte* const* bases, std::int64_t task) const = 0;
    virtual const char* name() const = 0;
    virtual bool is_plain() const { return false; }
};

// A piece with its axes from the outermost destination stride to the innermost, neighbours joined, and the bytes that both sides hold
// together taken out of them as `run`. No axis has size 1 or a negative destination stride.
struct Shape {
    Place dst;
    Place src;
    std::vector<Stride> axes;
    std::int64_t run;
    std::int64_t itemsize;

    std::int64_t rows() const;
};
Shape shape_of(const Piece& piece);

// Rows in the order of the destination (move_rows.cpp).
std::unique_ptr<Walk> walk_rows(const Shape& shape, const Manner& manner);

// Contiguous pieces, any number of them (move_blocks.cpp).
std::unique_ptr<Walk> walk_blocks(const std::vector<Shape>& shapes, const Manner& manner);

// Rows of several pieces that have the same number of them, together (move_table.cpp): null where they have not.
std::unique_ptr<Walk> walk_table(const std::vector<Shape>& shapes, const Manner& manner);

// Two axes exchanged, in tiles (move_tiles.cpp): null where none are.
std::unique_ptr<Walk> walk_tiles(const Shape& shape, const Manner& manner);

// The same past the cache, in whole lines (move_turns.cpp): `otherwise` where that cannot be. `along` is contiguous in the source.
std::unique_ptr<Walk> walk_turns(const Shape& shape, std::size_t along, std::unique_ptr<Walk> otherwise, const Manner& manner);

// Small matrices, past the cache those that follow each other in the destination (move_matrices.cpp): null where there are none.
std::unique_ptr<Walk> walk_matrices(const Shape& shape, std::size_t down, std::size_t along, const Manner& manner);

inline std::int64_t least(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
inline std::int64_t most(std::int64_t a, std::int64_t b) { return a < b ? b : a; }
inline std::int64_t parts(std::int64_t whole, std::int64_t part) { return (whole + part - 1) / part; }

// Runs that follow each other in the destination, past the cache.
class Runs {
public:
    explicit Runs(std::byte* dst) : dst_(dst) {}
    void add(const std::byte* src, std::int64_t bytes) {
        src_[count_] = src;
        bytes_[count_] = static_cast<std::size_t>(bytes);
        if (++count_ == kMost) flush();
    }
    void flush() {
        if (count_ != 0) movers().stream_runs(dst_, src_, bytes_, count_, ahead());
        for (int i = 0; i < count_; ++i) dst_ += bytes_[i];
        count_ = 0;
    }

private:
    static constexpr int kMost = 64, kMostAhead = 4;

    // How many runs further on is asked for: about a page.
    int ahead() const {
        if (!fetches_within_pages()) return 0;
        return static_cast<int>(most(2, least(kMostAhead, parts(kPage, static_cast<std::int64_t>(bytes_[0])))));
    }

    std::byte* dst_;
    int count_ = 0;
    const std::byte* src_[kMost];
    std::size_t bytes_[kMost];
};

// Rows past the cache where they allow it.
void copy_rows_past(std::byte* dst, std::ptrdiff_t dst_step, const std::byte* src, std::ptrdiff_t src_step, std::int64_t rows,
                    std::int64_t bytes);

}  // namespace dovetail::moving
