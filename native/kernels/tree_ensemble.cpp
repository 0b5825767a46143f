// TreeEnsemble: the sum of decision trees for each row and target. Several rows descend a tree in parallel, so that the loads
// of one row hide the latency of another.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "int_math.h"
#include "kernels/kernels.h"

namespace dovetail {
namespace {

constexpr int kLanes = 16;                          // rows, or trees, that descend in parallel
constexpr std::int64_t kRows = 256;                 // rows of a task, for which a tree stays in cache
constexpr std::int64_t kScratchBytes = 128 * 1024;  // totals of a task

enum Column { kFeature, kMode, kMissing, kTrue, kFalse, kMembersBegin, kMembersEnd, kColumns };
enum Mode { kLessEqual, kLess, kGreaterEqual, kGreater, kEqual, kNotEqual, kMember };
enum class Aggregate { sum, average, min, max };

// A node or a leaf. A leaf is its own successor, so that all rows take as many steps as the longest path.
template <typename T>
struct TreeNode {
    T split;
    std::int32_t feature;  // byte offset from the first feature of a row
    std::int32_t next[2];  // successors if the test is false, and if it is true
    std::uint16_t mode;
    std::uint16_t missing;  // result of the test for NaN
};

struct Members {
    std::int32_t begin, end;
};

template <typename T>
struct PackedTrees {
    std::vector<TreeNode<T>> nodes;
    std::vector<Members> members;
};

template <typename T>
T read(const Operand& x, std::int64_t index, std::int64_t column = 0) {
    const std::byte* at = x.constant + index * x.strides[0] + (x.rank() > 1 ? column * x.strides[1] : 0);
    T result;
    std::memcpy(&result, at, sizeof(T));
    return result;
}

template <typename T>
std::vector<T> read_all(const Operand& x) {
    std::vector<T> result(static_cast<std::size_t>(x.sizes[0]));
    for (std::size_t i = 0; i < result.size(); ++i) result[i] = read<T>(x, static_cast<std::int64_t>(i));
    return result;
}

void require(bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(std::string("tree_ensemble: ") + what);
}

// The inputs by index.
enum Input { kX, kNodes, kSplits, kRoots, kLeafStarts, kLeafTargets, kLeafWeights, kMemberValues, kInputs };

template <typename T>
class TreeEnsemble : public Kernel {
public:
    TreeEnsemble(const Spec& spec, WeightCache& cache)
        : x_(spec.inputs[kX]), y_(spec.outputs[0]), count_(static_cast<std::int32_t>(spec.inputs[kNodes].sizes[0])),
          targets_(y_.sizes[1]), aggregate_(static_cast<Aggregate>(spec.integer("aggregate"))),
          roots_(read_all<std::int32_t>(spec.inputs[kRoots])), leaf_starts_(read_all<std::int32_t>(spec.inputs[kLeafStarts])),
          leaf_targets_(read_all<std::int32_t>(spec.inputs[kLeafTargets])), leaf_weights_(read_all<T>(spec.inputs[kLeafWeights])),
          member_values_(read_all<T>(spec.inputs[kMemberValues])) {
        const Operand& nodes = spec.inputs[kNodes];
        const std::string key = "tree_ensemble " + std::to_string(reinterpret_cast<std::uintptr_t>(nodes.constant)) + " " +
                                std::to_string(x_.strides[1]);
        trees_ =
            std::static_pointer_cast<const PackedTrees<T>>(cache.get_or_create(key, [&] { return pack_nodes(spec, cache); }));
        for (const auto& node : trees_->nodes) {
            if (&node - trees_->nodes.data() >= count_) break;
            has_missing_ |= node.missing != 0;
            is_less_equal_ &= node.mode == kLessEqual;
            is_less_ &= node.mode == kLess;
        }
        bool is_one_each = true;
        for (std::size_t i = 0; i + 1 < leaf_starts_.size(); ++i) is_one_each &= leaf_starts_[i] == static_cast<std::int32_t>(i);
        has_single_weights_ = is_one_each && targets_ == 1 && is_sum();
        const std::int64_t row_bytes = targets_ * static_cast<std::int64_t>(sizeof(T) + 1);
        rows_ = std::clamp<std::int64_t>(kScratchBytes / std::max<std::int64_t>(row_bytes, 1), 1, kRows);
    }

    std::string name() const override { return std::string("tree_ensemble ") + name_of(x_.element); }

    std::size_t scratch_bytes() const override { return static_cast<std::size_t>(rows_ * targets_) * (sizeof(T) + 1); }

    void run(const Run& run) const override {
        const std::int64_t rows = x_.sizes[0];
        run.pool->parallel_for(ceil_div(rows, rows_), [&](std::int64_t task, int worker) {
            const std::int64_t first = task * rows_;
            auto* totals = reinterpret_cast<T*>(run.scratch_of(worker));
            block(run, first, std::min(rows - first, rows_), totals, reinterpret_cast<unsigned char*>(totals + rows_ * targets_));
        });
    }

private:
    bool is_sum() const { return aggregate_ == Aggregate::sum || aggregate_ == Aggregate::average; }

    void block(const Run& run, std::int64_t first, std::int64_t count, T* totals, unsigned char* is_set) const {
        std::fill(totals, totals + count * targets_, T(0));
        if (!is_sum()) std::memset(is_set, 0, static_cast<std::size_t>(count * targets_));
        const std::byte* x = run.at(x_) + first * x_.strides[0];
        if (is_less_equal_)
            has_missing_ ? descend_block<kLessEqual, true>(x, count, totals, is_set)
                         : descend_block<kLessEqual, false>(x, count, totals, is_set);
        else if (is_less_)
            has_missing_ ? descend_block<kLess, true>(x, count, totals, is_set)
                         : descend_block<kLess, false>(x, count, totals, is_set);
        else
            descend_block<kMember, true>(x, count, totals, is_set);
        std::byte* y = run.at(y_) + first * y_.strides[0];
        const T trees = static_cast<T>(roots_.size());
        for (std::int64_t row = 0; row < count; ++row)
            for (std::int64_t target = 0; target < targets_; ++target) {
                const T sum = totals[row * targets_ + target];
                *reinterpret_cast<T*>(y + row * y_.strides[0] + target * y_.strides[1]) =
                    aggregate_ == Aggregate::average ? sum / trees : sum;
            }
    }

    // The weights of leaves are added tree by tree, whatever the grouping of rows and trees, so that the bits of a total do not
    // depend on the position of its row.
    template <int kTest, bool kNaN>
    void descend_block(const std::byte* x, std::int64_t count, T* totals, unsigned char* is_set) const {
        const std::int64_t trees = static_cast<std::int64_t>(roots_.size());
        const std::byte* rows[kLanes];
        std::int32_t at[kLanes];
        if (count < kLanes) {
            for (std::int64_t row = 0; row < count; ++row) {
                std::fill(rows, rows + kLanes, x + row * x_.strides[0]);
                for (std::int64_t tree = 0; tree < trees; tree += kLanes) {
                    for (std::int64_t lane = 0; lane < kLanes; ++lane)
                        at[lane] = roots_[static_cast<std::size_t>(std::min(tree + lane, trees - 1))];
                    descend<kTest, kNaN>(rows, at);
                    const std::int64_t last = std::min<std::int64_t>(kLanes, trees - tree);
                    for (std::int64_t lane = 0; lane < last; ++lane) add(at[lane] - count_, row, totals, is_set);
                }
            }
            return;
        }
        for (const std::int32_t root : roots_)
            for (std::int64_t row = 0; row < count; row += kLanes) {
                for (std::int64_t lane = 0; lane < kLanes; ++lane)
                    rows[lane] = x + std::min(row + lane, count - 1) * x_.strides[0];
                std::fill(at, at + kLanes, root);
                descend<kTest, kNaN>(rows, at);
                const std::int64_t last = std::min<std::int64_t>(kLanes, count - row);
                for (std::int64_t lane = 0; lane < last; ++lane) add(at[lane] - count_, row + lane, totals, is_set);
            }
    }

    template <int kTest, bool kNaN>
    void descend(const std::byte* const (&rows)[kLanes], std::int32_t (&at)[kLanes]) const {
        const TreeNode<T>* nodes = trees_->nodes.data();
        std::int32_t lowest = 0;
        while (lowest < count_) {
            lowest = std::numeric_limits<std::int32_t>::max();
            for (int lane = 0; lane < kLanes; ++lane) {
                const TreeNode<T>& node = nodes[at[lane]];
                T value;
                std::memcpy(&value, rows[lane] + node.feature, sizeof(T));
                bool holds = kTest == kLessEqual ? value <= node.split
                             : kTest == kLess    ? value < node.split
                                                 : test(node, at[lane], value);
                if (kNaN) holds |= (value != value) & (node.missing != 0);
                at[lane] = node.next[holds];
                lowest = std::min(lowest, at[lane]);
            }
        }
    }

    bool test(const TreeNode<T>& node, std::int32_t index, T value) const {
        switch (node.mode) {
            case kLessEqual: return value <= node.split;
            case kLess: return value < node.split;
            case kGreaterEqual: return value >= node.split;
            case kGreater: return value > node.split;
            case kEqual: return value == node.split;
            case kNotEqual: return value != node.split;
            default: break;
        }
        if (index >= count_) return false;
        const Members& members = trees_->members[static_cast<std::size_t>(index)];
        const T* values = member_values_.data();
        return std::find(values + members.begin, values + members.end, value) != values + members.end;
    }

    void add(std::int32_t leaf, std::int64_t row, T* totals, unsigned char* is_set) const {
        if (has_single_weights_) {
            totals[row] += leaf_weights_[static_cast<std::size_t>(leaf)];
            return;
        }
        const std::int32_t end = leaf_starts_[static_cast<std::size_t>(leaf) + 1];
        for (std::int32_t i = leaf_starts_[static_cast<std::size_t>(leaf)]; i < end; ++i) {
            const std::int64_t index = row * targets_ + leaf_targets_[static_cast<std::size_t>(i)];
            const T weight = leaf_weights_[static_cast<std::size_t>(i)];
            if (is_sum()) {
                totals[index] += weight;
                continue;
            }
            const bool is_better = aggregate_ == Aggregate::min ? weight < totals[index] : weight > totals[index];
            if (!is_set[index] || is_better) totals[index] = weight;
            is_set[index] = 1;
        }
    }

    std::shared_ptr<const void> pack_nodes(const Spec& spec, WeightCache& cache) const {
        const Operand &table = spec.inputs[kNodes], &splits = spec.inputs[kSplits];
        const auto leaves = static_cast<std::int32_t>(leaf_starts_.size() - 1);
        auto result = std::make_shared<PackedTrees<T>>();
        result->nodes.resize(static_cast<std::size_t>(count_ + leaves));
        result->members.resize(static_cast<std::size_t>(count_));
        for (std::int32_t i = 0; i < count_; ++i) {
            TreeNode<T>& node = result->nodes[static_cast<std::size_t>(i)];
            node.split = read<T>(splits, i);
            node.feature = static_cast<std::int32_t>(read<std::int32_t>(table, i, kFeature) * x_.strides[1]);
            node.next[0] = read<std::int32_t>(table, i, kFalse);
            node.next[1] = read<std::int32_t>(table, i, kTrue);
            node.mode = static_cast<std::uint16_t>(read<std::int32_t>(table, i, kMode));
            node.missing = read<std::int32_t>(table, i, kMissing) != 0;
            result->members[static_cast<std::size_t>(i)] = {read<std::int32_t>(table, i, kMembersBegin),
                                                            read<std::int32_t>(table, i, kMembersEnd)};
        }
        for (std::int32_t leaf = count_; leaf < count_ + leaves; ++leaf)
            result->nodes[static_cast<std::size_t>(leaf)] = {T(0), 0, {leaf, leaf}, kLessEqual, 0};
        cache.add_bytes(result->nodes.size() * sizeof(TreeNode<T>) + result->members.size() * sizeof(Members));
        return result;
    }

    Operand x_, y_;
    std::int32_t count_;
    std::int64_t targets_;
    Aggregate aggregate_;
    std::vector<std::int32_t> roots_, leaf_starts_, leaf_targets_;
    std::vector<T> leaf_weights_, member_values_;
    std::shared_ptr<const PackedTrees<T>> trees_;
    std::int64_t rows_ = 1;
    bool has_missing_ = false, is_less_equal_ = true, is_less_ = true, has_single_weights_ = false;
};

// Throws unless every index is in range and no path returns to a node, so that every descent ends.
void check_tables(const Spec& spec) {
    const Operand& table = spec.inputs[kNodes];
    const std::int64_t count = table.sizes[0], leaves = spec.inputs[kLeafStarts].sizes[0] - 1;
    const std::int64_t weights = spec.inputs[kLeafWeights].sizes[0], members = spec.inputs[kMemberValues].sizes[0];
    std::vector<std::int32_t> before(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t feature = read<std::int32_t>(table, i, kFeature), mode = read<std::int32_t>(table, i, kMode);
        require(feature >= 0 && feature < spec.inputs[kX].sizes[1], "a feature index is out of range");
        require(feature * spec.inputs[kX].strides[1] <= std::numeric_limits<std::int32_t>::max(),
                "a row must have less than 2 GiB");
        require(mode >= 0 && mode <= kMember, "a node mode is out of range");
        const std::int64_t begin = read<std::int32_t>(table, i, kMembersBegin), end = read<std::int32_t>(table, i, kMembersEnd);
        require(begin >= 0 && begin <= end && end <= members, "a range of member values is out of range");
        for (const Column side : {kTrue, kFalse}) {
            const std::int64_t next = read<std::int32_t>(table, i, side);
            require(next >= 0 && next < count + leaves, "a child index is out of range");
            if (next < count) ++before[static_cast<std::size_t>(next)];
        }
    }
    std::vector<std::int32_t> open;
    for (std::int64_t i = 0; i < count; ++i)
        if (before[static_cast<std::size_t>(i)] == 0) open.push_back(static_cast<std::int32_t>(i));
    std::int64_t visited = 0;
    for (; !open.empty(); ++visited) {
        const std::int32_t node = open.back();
        open.pop_back();
        for (const Column side : {kTrue, kFalse}) {
            const std::int32_t next = read<std::int32_t>(table, node, side);
            if (next < count && --before[static_cast<std::size_t>(next)] == 0) open.push_back(next);
        }
    }
    require(visited == count, "the nodes must not form a cycle");
    for (const std::int32_t root : read_all<std::int32_t>(spec.inputs[kRoots]))
        require(root >= 0 && root < count, "a root must be a node");
    const auto starts = read_all<std::int32_t>(spec.inputs[kLeafStarts]);
    require(starts.front() == 0 && starts.back() == weights && std::is_sorted(starts.begin(), starts.end()),
            "leaf ranges must be ascending and cover all weights");
    for (const std::int32_t target : read_all<std::int32_t>(spec.inputs[kLeafTargets]))
        require(target >= 0 && target < spec.outputs[0].sizes[1], "a target index is out of range");
}

}  // namespace

std::unique_ptr<Kernel> make_tree_ensemble(const Spec& spec, WeightCache& cache) {
    require(spec.inputs.size() == kInputs && spec.outputs.size() == 1, "needs 8 inputs and 1 output");
    const Operand &x = spec.inputs[kX], &y = spec.outputs[0], &table = spec.inputs[kNodes];
    require(x.element == Element::f32 || x.element == Element::f64, "element type must be f32 or f64");
    require(x.rank() == 2 && y.rank() == 2 && y.sizes[0] == x.sizes[0] && y.element == x.element,
            "the output must have the rows and the type of the input");
    require(x.strides[1] >= 0 && x.sizes[1] > 0, "features must have a stride of at least 0");
    for (std::size_t i = 1; i < kInputs; ++i) {
        const Operand& operand = spec.inputs[i];
        const bool is_values = i == kSplits || i == kLeafWeights || i == kMemberValues;
        require(operand.is_constant() && operand.element == (is_values ? x.element : Element::i32),
                "tables must be constants of their type");
        require(operand.rank() == (i == kNodes ? 2U : 1U), "tables must have rank 1, nodes rank 2");
    }
    require(table.sizes[1] == kColumns && spec.inputs[kSplits].sizes[0] == table.sizes[0],
            "nodes must have a row for each split");
    require(spec.inputs[kRoots].sizes[0] > 0 && spec.inputs[kLeafStarts].sizes[0] > 0, "needs at least 1 tree");
    require(spec.inputs[kLeafTargets].sizes[0] == spec.inputs[kLeafWeights].sizes[0], "needs as many targets as weights");
    require(table.sizes[0] + spec.inputs[kLeafStarts].sizes[0] < std::int64_t{1} << 31, "needs less than 2^31 nodes");
    const std::int64_t aggregate = spec.integer("aggregate", -1);
    require(aggregate >= 0 && aggregate <= 3, "aggregate must be sum, average, min or max");
    check_tables(spec);
    if (x.element == Element::f64) return std::make_unique<TreeEnsemble<double>>(spec, cache);
    return std::make_unique<TreeEnsemble<float>>(spec, cache);
}

}  // namespace dovetail
