// Non-maximum suppression, for each batch and class.
#include <algorithm>
#include <limits>
#include <stdexcept>

#include "kernels/kernels.h"
#include "kernels/sort_keys.h"

namespace dovetail {
namespace {

// Boxes as structure of arrays: minimum and maximum along both axes, and area.
struct Boxes {
    float* low[2];
    float* high[2];
    float* area;

    void set(std::int64_t at, const float (&corners)[4]) {
        for (int i = 0; i < 2; ++i) {
            low[i][at] = corners[i];
            high[i][at] = corners[i + 2];
        }
        area[at] = (corners[2] - corners[0]) * (corners[3] - corners[1]);
    }
};

constexpr std::int64_t kFloatsPerBox = 5;

float min_of(float a, float b) { return a < b || a != a ? a : b; }
float max_of(float a, float b) { return a > b || a != a ? a : b; }

class NonMaxSuppression : public Kernel {
public:
    explicit NonMaxSuppression(const Spec& spec)
        : boxes_(spec.inputs[0]), scores_(spec.inputs[1]), iou_threshold_(spec.inputs[2]), score_threshold_(spec.inputs[3]),
          table_(spec.outputs[0]), counts_(spec.outputs[1]), classes_(scores_.sizes[1]), size_(scores_.sizes[2]),
          max_boxes_(table_.sizes[2]), is_center_(spec.integer("center") != 0), is_inclusive_(spec.integer("inclusive") != 0) {}

    std::string name() const override { return "nms"; }

    std::size_t scratch_bytes() const override {
        return static_cast<std::size_t>(size_) * sizeof(std::uint64_t) +
               static_cast<std::size_t>(max_boxes_ * kFloatsPerBox) * sizeof(float);
    }

    void run(const Run& run) const override {
        run.pool->parallel_for(scores_.sizes[0] * classes_, [&](std::int64_t task, int worker) {
            const std::int64_t batch = task / classes_, label = task % classes_;
            const std::int64_t count = select(run, batch, label, run.scratch_of(worker));
            *reinterpret_cast<std::int32_t*>(run.at(counts_) + batch * counts_.strides[0] + label * counts_.strides[1]) =
                static_cast<std::int32_t>(count);
        });
    }

private:
    // Selects boxes; returns the number of selected boxes. A heap yields the candidates by descending score, and by ascending
    // index where scores are equal.
    std::int64_t select(const Run& run, std::int64_t batch, std::int64_t label, std::byte* scratch) const {
        auto* heap = reinterpret_cast<std::uint64_t*>(scratch);
        const std::byte* boxes = run.at(boxes_) + batch * boxes_.strides[0];
        std::byte* table = run.at(table_) + batch * table_.strides[0] + label * table_.strides[1];
        const float iou_threshold = *reinterpret_cast<const float*>(run.at(iou_threshold_));
        Boxes selected = boxes_at(reinterpret_cast<float*>(heap + size_));
        std::int64_t remaining = candidates(run, batch, label, heap), count = 0;
        std::make_heap(heap, heap + remaining);
        for (; remaining > 0 && count < max_boxes_; --remaining) {
            std::pop_heap(heap, heap + remaining);
            const auto index = static_cast<std::int64_t>(static_cast<std::uint32_t>(~heap[remaining - 1]));
            float corners[4];
            read(boxes + index * boxes_.strides[1], corners);
            selected.set(count, corners);
            if (is_suppressed(selected, count, iou_threshold)) continue;
            *reinterpret_cast<std::int32_t*>(table + count++ * table_.strides[2]) = static_cast<std::int32_t>(index);
        }
        return count;
    }

    Boxes boxes_at(float* memory) const {
        return {{memory, memory + max_boxes_}, {memory + 2 * max_boxes_, memory + 3 * max_boxes_}, memory + 4 * max_boxes_};
    }

    // Writes the candidates as entries of a sort key and an index; returns their number. The entry with the greater score comes
    // first, a NaN score last.
    std::int64_t candidates(const Run& run, std::int64_t batch, std::int64_t label, std::uint64_t* entries) const {
        const std::byte* scores = run.at(scores_) + batch * scores_.strides[0] + label * scores_.strides[1];
        const float score_threshold = *reinterpret_cast<const float*>(run.at(score_threshold_));
        const bool takes_all = !(score_threshold > -std::numeric_limits<float>::infinity());
        std::int64_t count = 0;
        for (std::int64_t i = 0; i < size_; ++i) {
            const float score = *reinterpret_cast<const float*>(scores + i * scores_.strides[2]);
            if (!takes_all && !(score > score_threshold)) continue;
            const std::uint64_t key = score != score ? 0 : sort_key(score);
            entries[count++] = key << 32 | static_cast<std::uint32_t>(~i);
        }
        return count;
    }

    // The corners of a box: minimum and maximum along both axes.
    void read(const std::byte* box, float (&corners)[4]) const {
        float coordinates[4];
        for (int i = 0; i < 4; ++i) coordinates[i] = *reinterpret_cast<const float*>(box + i * boxes_.strides[2]);
        for (int i = 0; i < 2; ++i) {
            float first = coordinates[i], second = coordinates[i + 2];
            if (is_center_) {
                const float half = second / 2;
                second = first + half;
                first = first - half;
            }
            corners[i] = min_of(first, second);
            corners[i + 2] = max_of(first, second);
        }
    }

    // True if the IoU of the box at `last` with an earlier selected box exceeds the threshold.
    bool is_suppressed(const Boxes& boxes, std::int64_t last, float iou_threshold) const {
        int any = 0;
        for (std::int64_t i = 0; i < last; ++i) {
            const float iou = iou_of(boxes, i, last);
            any |= (is_inclusive_ ? iou < iou_threshold : iou <= iou_threshold) ? 0 : 1;
        }
        return any != 0;
    }

    static float iou_of(const Boxes& boxes, std::int64_t i, std::int64_t j) {
        float sides[2];
        for (int k = 0; k < 2; ++k)
            sides[k] = (boxes.high[k][i] < boxes.high[k][j] ? boxes.high[k][i] : boxes.high[k][j]) -
                       (boxes.low[k][i] > boxes.low[k][j] ? boxes.low[k][i] : boxes.low[k][j]);
        const float common = sides[0] * sides[1], both = boxes.area[i] + boxes.area[j] - common;
        const bool is_valid = (boxes.area[i] > 0) & (boxes.area[j] > 0) & (both > 0) & (sides[0] > 0) & (sides[1] > 0);
        // An unconditional division keeps the surrounding loop free of branches.
        return (is_valid ? common : 0.0f) / (is_valid ? both : 1.0f);
    }

    Operand boxes_, scores_, iou_threshold_, score_threshold_, table_, counts_;
    std::int64_t classes_;
    std::int64_t size_;
    std::int64_t max_boxes_;
    bool is_center_;
    bool is_inclusive_;
};

void require(bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(std::string("nms: ") + what);
}

}  // namespace

std::unique_ptr<Kernel> make_nms(const Spec& spec, WeightCache&) {
    require(spec.inputs.size() == 4 && spec.outputs.size() == 2, "needs 4 inputs and 2 outputs");
    for (const Operand& x : spec.inputs) require(x.element == Element::f32, "inputs must be f32");
    for (const Operand& y : spec.outputs) require(y.element == Element::i32, "outputs must be i32");
    const Operand &boxes = spec.inputs[0], &scores = spec.inputs[1], &table = spec.outputs[0], &counts = spec.outputs[1];
    require(boxes.rank() == 3 && scores.rank() == 3 && table.rank() == 3 && counts.rank() == 2,
            "boxes, scores and selected indices must have rank 3, counts rank 2");
    require(boxes.sizes[0] == scores.sizes[0] && boxes.sizes[1] == scores.sizes[2] && boxes.sizes[2] == 4,
            "needs a box of 4 numbers for each score");
    for (std::size_t i = 0; i < 2; ++i)
        require(table.sizes[i] == scores.sizes[i] && counts.sizes[i] == scores.sizes[i], "the outputs have wrong shapes");
    require(spec.inputs[2].count() == 1 && spec.inputs[3].count() == 1, "thresholds must be scalars");
    require(scores.sizes[2] < std::int64_t{1} << 31, "needs less than 2^31 boxes");
    return std::make_unique<NonMaxSuppression>(spec);
}

}  // namespace dovetail
