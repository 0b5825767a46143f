// tree_ensemble: what decision trees say of each row, a number for each target. Rows go down a tree side by side, so that the loads of
// one hide the latency of another.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "kernels/kernels.h"

namespace dovetail {
namespace {

constexpr int kLanes = 16;                          // walks side by side
constexpr std::int64_t kRows = 256;                 // rows of a task, for which a tree stays in cache
constexpr std::int64_t kScratchBytes = 128 * 1024;  // sums of a task

enum Column { kFeature, kMode, kMissing, kTrue, kFalse, kMembersBegin, kMembersEnd, kColumns };
enum Mode { kLessEqual, kLess, kGreaterEqual, kGreater, kEqual, kNotEqual, kMember };
enum class Aggregate { sum, average, min, max };

// A node, or a leaf that leads to itself: then all walks take as many steps as the longest of them.
template <typename T>
struct TreeNode {
    T split;
    std::int32_t feature;  // bytes from the first feature of a row
    std::int32_t next[2];  // where a test fails, where it holds
    std::uint16_t mode;
    std::uint16_t missing;  // whether it holds for NaN
};

struct Members {
    std::int32_t begin, end;
};

template <typename T>
struct Packed {
    std::vector<TreeNode<T>> nodes;
    std::vector<Members> members;
};

template <typename T>
T read(const Operand& x, std::int64_t index, std::int64_t column = 0) {
    const std::byte* at = x.constant + index * x.strides[0] + (x.rank() > 1 ? column * x.strides[1] : 0);
    T found;
    std::memcpy(&found, at, sizeof(T));
    return found;
}

template <typename T>
std::vector<T> read_all(const Operand& x) {
    std::vector<T> found(static_cast<std::size_t>(x.sizes[0]));
    for (std::size_t i = 0; i < found.size(); ++i) found[i] = read<T>(x, static_cast<std::int64_t>(i));
    return found;
}

void require(bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(std::string("tree_ensemble: ") + what);
}

// Inputs by place.
enum Input { kX, kNodes, kSplits, kRoots, kLeafStarts, kLeafTargets, kLeafWeights, kMemberValues, kInputs };

template <typename T>
class TreeEnsemble : public Step {
public:
    TreeEnsemble(const Spec& spec, Store& store)
        : x_(spec.inputs[kX]), y_(spec.outputs[0]), count_(static_cast<std::int32_t>(spec.inputs[kNodes].sizes[0])),
          targets_(y_.sizes[1]), aggregate_(static_cast<Aggregate>(spec.integer("aggregate"))),
          roots_(read_all<std::int32_t>(spec.inputs[kRoots])), leaf_starts_(read_all<std::int32_t>(spec.inputs[kLeafStarts])),
          leaf_targets_(read_all<std::int32_t>(spec.inputs[kLeafTargets])), leaf_weights_(read_all<T>(spec.inputs[kLeafWeights])),
          member_values_(read_all<T>(spec.inputs[kMemberValues])) {
        const Operand& nodes = spec.inputs[kNodes];
        const std::string key = "tree_ensemble " + std::to_string(reinterpret_cast<std::uintptr_t>(nodes.constant)) + " " +
                                std::to_string(x_.strides[1]);
        packed_ = std::static_pointer_cast<const Packed<T>>(store.keep(key, [&] { return packed(spec, store); }));
        for (const auto& node : packed_->nodes) {
            if (&node - packed_->nodes.data() >= count_) break;
            has_missing_ |= node.missing != 0;
            is_less_equal_ &= node.mode == kLessEqual;
            is_less_ &= node.mode == kLess;
        }
        bool is_one_each = true;
        for (std::size_t i = 0; i + 1 < leaf_starts_.size(); ++i) is_one_each &= leaf_starts_[i] == static_cast<std::int32_t>(i);
        is_plain_ = is_one_each && targets_ == 1 && is_sum();
        const std::int64_t row_bytes = targets_ * static_cast<std::int64_t>(sizeof(T) + 1);
        rows_ = std::clamp<std::int64_t>(kScratchBytes / std::max<std::int64_t>(row_bytes, 1), 1, kRows);
    }

    std::string name() const override { return std::string("tree_ensemble ") + name_of(x_.element); }

    std::size_t scratch_bytes() const override { return static_cast<std::size_t>(rows_ * targets_) * (sizeof(T) + 1); }

    void run(const Run& run) const override {
        const std::int64_t rows = x_.sizes[0];
        run.pool->each((rows + rows_ - 1) / rows_, [&](std::int64_t task, int worker) {
            const std::int64_t first = task * rows_;
            auto* sums = reinterpret_cast<T*>(run.scratch_of(worker));
            block(run, first, std::min(rows - first, rows_), sums, reinterpret_cast<unsigned char*>(sums + rows_ * targets_));
        });
    }

private:
    bool is_sum() const { return aggregate_ == Aggregate::sum || aggregate_ == Aggregate::average; }

    void block(const Run& run, std::int64_t first, std::int64_t count, T* sums, unsigned char* said) const {
        std::fill(sums, sums + count * targets_, T(0));
        if (!is_sum()) std::memset(said, 0, static_cast<std::size_t>(count * targets_));
        const std::byte* x = run.at(x_) + first * x_.strides[0];
        if (is_less_equal_)
            has_missing_ ? walk_block<kLessEqual, true>(x, count, sums, said) : walk_block<kLessEqual, false>(x, count, sums, said);
        else if (is_less_)
            has_missing_ ? walk_block<kLess, true>(x, count, sums, said) : walk_block<kLess, false>(x, count, sums, said);
        else
            walk_block<kMember, true>(x, count, sums, said);
        std::byte* y = run.at(y_) + first * y_.strides[0];
        const T trees = static_cast<T>(roots_.size());
        for (std::int64_t row = 0; row < count; ++row)
            for (std::int64_t target = 0; target < targets_; ++target) {
                const T sum = sums[row * targets_ + target];
                *reinterpret_cast<T*>(y + row * y_.strides[0] + target * y_.strides[1]) =
                    aggregate_ == Aggregate::average ? sum / trees : sum;
            }
    }

    // Sums go tree by tree, whatever is walked side by side: the bits do not depend on where a row lies.
    template <int kTest, bool kNaN>
    void walk_block(const std::byte* x, std::int64_t count, T* sums, unsigned char* said) const {
        const std::int64_t trees = static_cast<std::int64_t>(roots_.size());
        const std::byte* rows[kLanes];
        std::int32_t at[kLanes];
        if (count < kLanes) {
            for (std::int64_t row = 0; row < count; ++row) {
                std::fill(rows, rows + kLanes, x + row * x_.strides[0]);
                for (std::int64_t tree = 0; tree < trees; tree += kLanes) {
                    for (std::int64_t lane = 0; lane < kLanes; ++lane)
                        at[lane] = roots_[static_cast<std::size_t>(std::min(tree + lane, trees - 1))];
                    walk<kTest, kNaN>(rows, at);
                    const std::int64_t last = std::min<std::int64_t>(kLanes, trees - tree);
                    for (std::int64_t lane = 0; lane < last; ++lane) add(at[lane] - count_, row, sums, said);
                }
            }
            return;
        }
        for (const std::int32_t root : roots_)
            for (std::int64_t row = 0; row < count; row += kLanes) {
                for (std::int64_t lane = 0; lane < kLanes; ++lane) rows[lane] = x + std::min(row + lane, count - 1) * x_.strides[0];
                std::fill(at, at + kLanes, root);
                walk<kTest, kNaN>(rows, at);
                const std::int64_t last = std::min<std::int64_t>(kLanes, count - row);
                for (std::int64_t lane = 0; lane < last; ++lane) add(at[lane] - count_, row + lane, sums, said);
            }
    }

    template <int kTest, bool kNaN>
    void walk(const std::byte* const (&rows)[kLanes], std::int32_t (&at)[kLanes]) const {
        const TreeNode<T>* nodes = packed_->nodes.data();
        std::int32_t least = 0;
        while (least < count_) {
            least = std::numeric_limits<std::int32_t>::max();
            for (int lane = 0; lane < kLanes; ++lane) {
                const TreeNode<T>& node = nodes[at[lane]];
                T value;
                std::memcpy(&value, rows[lane] + node.feature, sizeof(T));
                bool holds = kTest == kLessEqual ? value <= node.split : kTest == kLess ? value < node.split : test(node, at[lane], value);
                if (kNaN) holds |= (value != value) & (node.missing != 0);
                at[lane] = node.next[holds];
                least = std::min(least, at[lane]);
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
        const Members& members = packed_->members[static_cast<std::size_t>(index)];
        const T* values = member_values_.data();
        return std::find(values + members.begin, values + members.end, value) != values + members.end;
    }

    void add(std::int32_t leaf, std::int64_t row, T* sums, unsigned char* said) const {
        if (is_plain_) {
            sums[row] += leaf_weights_[static_cast<std::size_t>(leaf)];
            return;
        }
        const std::int32_t end = leaf_starts_[static_cast<std::size_t>(leaf) + 1];
        for (std::int32_t i = leaf_starts_[static_cast<std::size_t>(leaf)]; i < end; ++i) {
            const std::int64_t place = row * targets_ + leaf_targets_[static_cast<std::size_t>(i)];
            const T weight = leaf_weights_[static_cast<std::size_t>(i)];
            if (is_sum()) {
                sums[place] += weight;
                continue;
            }
            const bool is_better = aggregate_ == Aggregate::min ? weight < sums[place] : weight > sums[place];
            if (!said[place] || is_better) sums[place] = weight;
            said[place] = 1;
        }
    }

    std::shared_ptr<const void> packed(const Spec& spec, Store& store) const {
        const Operand &table = spec.inputs[kNodes], &splits = spec.inputs[kSplits];
        const auto leaves = static_cast<std::int32_t>(leaf_starts_.size() - 1);
        auto found = std::make_shared<Packed<T>>();
        found->nodes.resize(static_cast<std::size_t>(count_ + leaves));
        found->members.resize(static_cast<std::size_t>(count_));
        for (std::int32_t i = 0; i < count_; ++i) {
            TreeNode<T>& node = found->nodes[static_cast<std::size_t>(i)];
            node.split = read<T>(splits, i);
            node.feature = static_cast<std::int32_t>(read<std::int32_t>(table, i, kFeature) * x_.strides[1]);
            node.next[0] = read<std::int32_t>(table, i, kFalse);
            node.next[1] = read<std::int32_t>(table, i, kTrue);
            node.mode = static_cast<std::uint16_t>(read<std::int32_t>(table, i, kMode));
            node.missing = read<std::int32_t>(table, i, kMissing) != 0;
            found->members[static_cast<std::size_t>(i)] = {read<std::int32_t>(table, i, kMembersBegin),
                                                           read<std::int32_t>(table, i, kMembersEnd)};
        }
        for (std::int32_t leaf = count_; leaf < count_ + leaves; ++leaf)
            found->nodes[static_cast<std::size_t>(leaf)] = {T(0), 0, {leaf, leaf}, kLessEqual, 0};
        store.count(found->nodes.size() * sizeof(TreeNode<T>) + found->members.size() * sizeof(Members));
        return found;
    }

    Operand x_, y_;
    std::int32_t count_;
    std::int64_t targets_;
    Aggregate aggregate_;
    std::vector<std::int32_t> roots_, leaf_starts_, leaf_targets_;
    std::vector<T> leaf_weights_, member_values_;
    std::shared_ptr<const Packed<T>> packed_;
    std::int64_t rows_ = 1;
    bool has_missing_ = false, is_less_equal_ = true, is_less_ = true, is_plain_ = false;
};

// That every index lies inside, and that no way comes back to a node: a walk then ends.
void check_tables(const Spec& spec) {
    const Operand& table = spec.inputs[kNodes];
    const std::int64_t count = table.sizes[0], leaves = spec.inputs[kLeafStarts].sizes[0] - 1;
    const std::int64_t weights = spec.inputs[kLeafWeights].sizes[0], members = spec.inputs[kMemberValues].sizes[0];
    std::vector<std::int32_t> before(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t feature = read<std::int32_t>(table, i, kFeature), mode = read<std::int32_t>(table, i, kMode);
        require(feature >= 0 && feature < spec.inputs[kX].sizes[1], "a feature that the rows lack");
        require(feature * spec.inputs[kX].strides[1] <= std::numeric_limits<std::int32_t>::max(), "rows of 2 GiB");
        require(mode >= 0 && mode <= kMember, "a test that there is not");
        const std::int64_t begin = read<std::int32_t>(table, i, kMembersBegin), end = read<std::int32_t>(table, i, kMembersEnd);
        require(begin >= 0 && begin <= end && end <= members, "members that are not there");
        for (const Column side : {kTrue, kFalse}) {
            const std::int64_t next = read<std::int32_t>(table, i, side);
            require(next >= 0 && next < count + leaves, "a way that leads nowhere");
            if (next < count) ++before[static_cast<std::size_t>(next)];
        }
    }
    std::vector<std::int32_t> open;
    for (std::int64_t i = 0; i < count; ++i)
        if (before[static_cast<std::size_t>(i)] == 0) open.push_back(static_cast<std::int32_t>(i));
    std::int64_t taken = 0;
    for (; !open.empty(); ++taken) {
        const std::int32_t node = open.back();
        open.pop_back();
        for (const Column side : {kTrue, kFalse}) {
            const std::int32_t next = read<std::int32_t>(table, node, side);
            if (next < count && --before[static_cast<std::size_t>(next)] == 0) open.push_back(next);
        }
    }
    require(taken == count, "a way that comes back to a node");
    for (const std::int32_t root : read_all<std::int32_t>(spec.inputs[kRoots])) require(root >= 0 && root < count, "a root that is no node");
    const auto starts = read_all<std::int32_t>(spec.inputs[kLeafStarts]);
    require(starts.front() == 0 && starts.back() == weights && std::is_sorted(starts.begin(), starts.end()), "leaves without weights of their own");
    for (const std::int32_t target : read_all<std::int32_t>(spec.inputs[kLeafTargets]))
        require(target >= 0 && target < spec.outputs[0].sizes[1], "a target that there is not");
}

}  // namespace

std::unique_ptr<Step> make_tree_ensemble(const Spec& spec, Store& store) {
    require(spec.inputs.size() == kInputs && spec.outputs.size() == 1, "eight inputs, one output");
    const Operand &x = spec.inputs[kX], &y = spec.outputs[0], &table = spec.inputs[kNodes];
    require(x.element == Element::f32 || x.element == Element::f64, "f32 and f64 alone");
    require(x.rank() == 2 && y.rank() == 2 && y.sizes[0] == x.sizes[0] && y.element == x.element, "the output is of another shape or type");
    require(x.strides[1] >= 0 && x.sizes[1] > 0, "features that run backwards");
    for (std::size_t i = 1; i < kInputs; ++i) {
        const Operand& each = spec.inputs[i];
        const bool is_values = i == kSplits || i == kLeafWeights || i == kMemberValues;
        require(each.is_constant() && each.element == (is_values ? x.element : Element::i32), "tables that are no constants of their type");
        require(each.rank() == (i == kNodes ? 2U : 1U), "tables of another rank");
    }
    require(table.sizes[1] == kColumns && spec.inputs[kSplits].sizes[0] == table.sizes[0], "tables of nodes");
    require(spec.inputs[kRoots].sizes[0] > 0 && spec.inputs[kLeafStarts].sizes[0] > 0, "no tree");
    require(spec.inputs[kLeafTargets].sizes[0] == spec.inputs[kLeafWeights].sizes[0], "as many targets as weights");
    require(table.sizes[0] + spec.inputs[kLeafStarts].sizes[0] < std::int64_t{1} << 31, "2^31 nodes");
    const std::int64_t aggregate = spec.integer("aggregate", -1);
    require(aggregate >= 0 && aggregate <= 3, "sum, average, min and max alone");
    check_tables(spec);
    if (x.element == Element::f64) return std::make_unique<TreeEnsemble<double>>(spec, store);
    return std::make_unique<TreeEnsemble<float>>(spec, store);
}

}  // namespace dovetail
