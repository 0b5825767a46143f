// suppress: of boxes that overlap, those of the greatest score, for each batch and class.
#include <algorithm>
#include <limits>
#include <stdexcept>

#include "kernels/kernels.h"
#include "kernels/sort_keys.h"

namespace dovetail {
namespace {

// Boxes side by side: least and greatest along both axes, and what they cover.
struct Boxes {
    float* low[2];
    float* high[2];
    float* area;

    void put(std::int64_t at, const float (&corners)[4]) {
        for (int i = 0; i < 2; ++i) {
            low[i][at] = corners[i];
            high[i][at] = corners[i + 2];
        }
        area[at] = (corners[2] - corners[0]) * (corners[3] - corners[1]);
    }
};

constexpr std::int64_t kFloatsPerBox = 5;

float least_of(float a, float b) { return a < b || a != a ? a : b; }
float most_of(float a, float b) { return a > b || a != a ? a : b; }

class Suppress : public Step {
public:
    explicit Suppress(const Spec& spec)
        : boxes_(spec.inputs[0]), scores_(spec.inputs[1]), overlap_(spec.inputs[2]), least_(spec.inputs[3]), table_(spec.outputs[0]),
          counts_(spec.outputs[1]), classes_(scores_.sizes[1]), size_(scores_.sizes[2]), most_(table_.sizes[2]),
          is_center_(spec.integer("center") != 0), is_inclusive_(spec.integer("inclusive") != 0) {}

    std::string name() const override { return "suppress"; }

    std::size_t scratch_bytes() const override {
        return static_cast<std::size_t>(size_) * sizeof(std::uint64_t) + static_cast<std::size_t>(most_ * kFloatsPerBox) * sizeof(float);
    }

    void run(const Run& run) const override {
        run.pool->each(scores_.sizes[0] * classes_, [&](std::int64_t task, int worker) {
            const std::int64_t batch = task / classes_, label = task % classes_;
            const std::int64_t count = keep(run, batch, label, run.scratch_of(worker));
            *reinterpret_cast<std::int32_t*>(run.at(counts_) + batch * counts_.strides[0] + label * counts_.strides[1]) =
                static_cast<std::int32_t>(count);
        });
    }

private:
    // How many are kept. A heap gives the candidates by falling score, the first of equal ones first.
    std::int64_t keep(const Run& run, std::int64_t batch, std::int64_t label, std::byte* scratch) const {
        auto* heap = reinterpret_cast<std::uint64_t*>(scratch);
        const std::byte* boxes = run.at(boxes_) + batch * boxes_.strides[0];
        std::byte* table = run.at(table_) + batch * table_.strides[0] + label * table_.strides[1];
        const float overlap = *reinterpret_cast<const float*>(run.at(overlap_));
        Boxes kept = boxes_in(reinterpret_cast<float*>(heap + size_));
        std::int64_t left = candidates(run, batch, label, heap), count = 0;
        std::make_heap(heap, heap + left);
        for (; left > 0 && count < most_; --left) {
            std::pop_heap(heap, heap + left);
            const auto place = static_cast<std::int64_t>(static_cast<std::uint32_t>(~heap[left - 1]));
            float corners[4];
            read(boxes + place * boxes_.strides[1], corners);
            kept.put(count, corners);
            if (is_suppressed(kept, count, overlap)) continue;
            *reinterpret_cast<std::int32_t*>(table + count++ * table_.strides[2]) = static_cast<std::int32_t>(place);
        }
        return count;
    }

    Boxes boxes_in(float* room) const {
        return {{room, room + most_}, {room + 2 * most_, room + 3 * most_}, room + 4 * most_};
    }

    // Ranks and places, of two the greater comes first: a score that is NaN comes last.
    std::int64_t candidates(const Run& run, std::int64_t batch, std::int64_t label, std::uint64_t* found) const {
        const std::byte* scores = run.at(scores_) + batch * scores_.strides[0] + label * scores_.strides[1];
        const float least = *reinterpret_cast<const float*>(run.at(least_));
        const bool takes_all = !(least > -std::numeric_limits<float>::infinity());
        std::int64_t count = 0;
        for (std::int64_t i = 0; i < size_; ++i) {
            const float score = *reinterpret_cast<const float*>(scores + i * scores_.strides[2]);
            if (!takes_all && !(score > least)) continue;
            const std::uint64_t rank = score != score ? 0 : rank_of(score);
            found[count++] = rank << 32 | static_cast<std::uint32_t>(~i);
        }
        return count;
    }

    // Least and greatest along both axes.
    void read(const std::byte* box, float (&corners)[4]) const {
        float given[4];
        for (int i = 0; i < 4; ++i) given[i] = *reinterpret_cast<const float*>(box + i * boxes_.strides[2]);
        for (int i = 0; i < 2; ++i) {
            float first = given[i], second = given[i + 2];
            if (is_center_) {
                const float half = second / 2;
                second = first + half;
                first = first - half;
            }
            corners[i] = least_of(first, second);
            corners[i + 2] = most_of(first, second);
        }
    }

    // Whether the box at `last` shares too much with one before it.
    bool is_suppressed(const Boxes& boxes, std::int64_t last, float overlap) const {
        int any = 0;
        for (std::int64_t i = 0; i < last; ++i) {
            const float share = share_of(boxes, i, last);
            any |= (is_inclusive_ ? share < overlap : share <= overlap) ? 0 : 1;
        }
        return any != 0;
    }

    static float share_of(const Boxes& boxes, std::int64_t i, std::int64_t j) {
        float sides[2];
        for (int k = 0; k < 2; ++k)
            sides[k] = (boxes.high[k][i] < boxes.high[k][j] ? boxes.high[k][i] : boxes.high[k][j]) -
                       (boxes.low[k][i] > boxes.low[k][j] ? boxes.low[k][i] : boxes.low[k][j]);
        const float common = sides[0] * sides[1], both = boxes.area[i] + boxes.area[j] - common;
        const bool is_sound = (boxes.area[i] > 0) & (boxes.area[j] > 0) & (both > 0) & (sides[0] > 0) & (sides[1] > 0);
        // Divided in any case, so that the loop around has no branch.
        return (is_sound ? common : 0.0f) / (is_sound ? both : 1.0f);
    }

    Operand boxes_, scores_, overlap_, least_, table_, counts_;
    std::int64_t classes_;
    std::int64_t size_;
    std::int64_t most_;
    bool is_center_;
    bool is_inclusive_;
};

void require(bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(std::string("suppress: ") + what);
}

}  // namespace

std::unique_ptr<Step> make_suppress(const Spec& spec, Store&) {
    require(spec.inputs.size() == 4 && spec.outputs.size() == 2, "four inputs, two outputs");
    for (const Operand& x : spec.inputs) require(x.element == Element::f32, "f32 alone");
    for (const Operand& y : spec.outputs) require(y.element == Element::i32, "results of i32 alone");
    const Operand &boxes = spec.inputs[0], &scores = spec.inputs[1], &table = spec.outputs[0], &counts = spec.outputs[1];
    require(boxes.rank() == 3 && scores.rank() == 3 && table.rank() == 3 && counts.rank() == 2, "tables of three axes");
    require(boxes.sizes[0] == scores.sizes[0] && boxes.sizes[1] == scores.sizes[2] && boxes.sizes[2] == 4, "a box for each score");
    for (std::size_t i = 0; i < 2; ++i)
        require(table.sizes[i] == scores.sizes[i] && counts.sizes[i] == scores.sizes[i], "the outputs have other shapes");
    require(spec.inputs[2].count() == 1 && spec.inputs[3].count() == 1, "limits of one number");
    require(scores.sizes[2] < std::int64_t{1} << 31, "2^31 boxes");
    return std::make_unique<Suppress>(spec);
}

}  // namespace dovetail
