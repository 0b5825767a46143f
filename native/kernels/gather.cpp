// gather, gather_elements, gather_nd: slices of the data, chosen by indices that are known at run time.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <stdexcept>

#include "kernels/kernels.h"
#include "copy/strategy.h"

namespace dovetail {
namespace {

using namespace moving;

// One axis of the slices to be made: how far apart they lie along it in the result, in the data before any index, and in the indices.
struct Along {
    std::int64_t size;
    std::int64_t to;
    std::int64_t data;
    std::int64_t index;
};

struct Offsets {
    std::int64_t to = 0;
    std::int64_t data = 0;
    std::int64_t index = 0;
};

// Places numbered row-major, walked row by row.
class Places {
public:
    explicit Places(const std::vector<Along>& axes = {}) {
        for (const Along& axis : axes) {
            count_ *= axis.size;
            if (axis.size == 1) continue;
            if (!outer_.empty() && is_joined(outer_.back(), axis))
                outer_.back() = {outer_.back().size * axis.size, axis.to, axis.data, axis.index};
            else
                outer_.push_back(axis);
        }
        if (outer_.empty()) return;
        row_ = outer_.back();
        outer_.pop_back();
    }

    std::int64_t count() const { return count_; }

    const Along& row() const { return row_; }

    // visit(offsets, length) for the places [first, end), row by row.
    template <typename F>
    void each(std::int64_t first, std::int64_t end, const F& visit) const {
        while (first < end) {
            const std::int64_t at = first % row_.size;
            const std::int64_t length = std::min(row_.size - at, end - first);
            Offsets offsets = begin_of(first);
            offsets.to += at * row_.to;
            offsets.data += at * row_.data;
            offsets.index += at * row_.index;
            visit(offsets, length);
            first += length;
        }
    }

private:
    static bool is_joined(const Along& a, const Along& b) {
        return a.to == b.to * b.size && a.data == b.data * b.size && a.index == b.index * b.size;
    }

    // Where the row of a place begins.
    Offsets begin_of(std::int64_t place) const {
        Offsets offsets;
        place /= row_.size;
        for (std::size_t i = outer_.size(); i-- > 0; place /= outer_[i].size) {
            const std::int64_t at = place % outer_[i].size;
            offsets.to += at * outer_[i].to;
            offsets.data += at * outer_[i].data;
            offsets.index += at * outer_[i].index;
        }
        return offsets;
    }

    std::int64_t count_ = 1;
    std::vector<Along> outer_;
    Along row_{1, 0, 0, 0};
};

// What is chosen: an axis of the data along which an index counts.
struct Coordinate {
    std::int64_t size;
    std::int64_t stride;
};

constexpr std::size_t kMostCoordinates = 8;

// How far into the data indices lead. Its members stay in registers, whatever is written meanwhile.
template <typename Index>
struct Reader {
    Coordinate axes[kMostCoordinates];
    std::size_t count;
    std::int64_t next;
    bool wraps;

    // Whether the coordinates lie within. Adds to `source` where they lead.
    bool read(const std::byte* at, std::int64_t& source) const {
        bool fits = true;
        for (std::size_t i = 0; i < count; ++i, at += next) fits &= read_one(axes[i], at, source);
        return fits;
    }

    bool read_one(const Coordinate& axis, const std::byte* at, std::int64_t& source) const {
        Index index;
        std::memcpy(&index, at, sizeof(Index));
        const std::int64_t place = index + (wraps && index < 0 ? axis.size : 0);
        // Unsigned, since an index outside may lead anywhere; it is not followed then.
        const auto distance = static_cast<std::uint64_t>(place) * static_cast<std::uint64_t>(axis.stride);
        source = static_cast<std::int64_t>(static_cast<std::uint64_t>(source) + distance);
        return static_cast<std::uint64_t>(place) < static_cast<std::uint64_t>(axis.size);
    }
};

constexpr std::int64_t kIndicesTogether = 4096;
constexpr std::int64_t kIndexCost = 16;  // what choosing a slice costs, in bytes copied

// How slices are chosen. `chosen` and `shared` are the axes of the result that have indices, and those that all indices share.
struct Choice {
    std::vector<Along> shared;
    std::vector<Along> chosen;
    std::vector<Coordinate> coordinates;
    std::int64_t coordinate_stride = 0;  // from one coordinate to the next, in the indices
    std::vector<Stride> slice;
    bool wraps = true;  // a negative index counts from the end
    bool zeros = false;  // an index outside gives zeros, and is no error
};

class Gather : public Step {
public:
    Gather(const Spec& spec, Choice choice)
        : name_(spec.kernel), data_(spec.inputs[0]), indices_(spec.inputs[1]), to_(spec.outputs[0]),
          is_empty_(to_.count() == 0), choice_(std::move(choice)), indexed_(choice_.chosen) {
        std::vector<Along> all = choice_.shared;
        all.insert(all.end(), choice_.chosen.begin(), choice_.chosen.end());
        if (is_empty_) return;
        places_ = Places(all);
        slice_ = shape_of(Piece{{}, {}, choice_.slice, static_cast<std::size_t>(data_.itemsize)});
        if (slice_.axes.empty()) slice_.axes.push_back({1, 0, 0});
        row_ = slice_.axes.back();
        slice_.axes.pop_back();
        for (const Stride& axis : slice_.axes) rows_ *= axis.size;
        is_element_ = rows_ == 1 && row_.size == 1;
    }

    void run(const Run& run) const override {
        indices_.itemsize == 4 ? run_with<std::int32_t>(run) : run_with<std::int64_t>(run);
    }

    std::string name() const override { return name_; }

private:
    template <typename Index>
    void run_with(const Run& run) const {
        const Reader<Index> reader = reader_of<Index>();
        if (!choice_.zeros && !all_fit(run, reader)) return run.fail("array.index-range");
        if (is_empty_) return;
        const std::int64_t count = places_.count(), bytes = count * (rows_ * row_.size * slice_.run + kIndexCost);
        const std::int64_t together = bytes < static_cast<std::int64_t>(kThreadsFrom) ? count : parts(count, 16);
        std::byte* to = run.at(to_) + slice_.dst.offset;
        const std::byte* data = run.at(data_) + slice_.src.offset;
        const std::byte* indices = run.at(indices_);
        run.pool->each(parts(count, together), [&](std::int64_t task, int) {
            places_.each(task * together, least(count, (task + 1) * together), [&](const Offsets& at, std::int64_t length) {
                copy_slices(to + at.to, data + at.data, indices + at.index, length, reader);
            });
        });
    }

    template <typename Index>
    Reader<Index> reader_of() const {
        Reader<Index> reader{{}, choice_.coordinates.size(), choice_.coordinate_stride, choice_.wraps};
        std::copy(choice_.coordinates.begin(), choice_.coordinates.end(), reader.axes);
        return reader;
    }

    template <typename Index>
    bool all_fit(const Run& run, const Reader<Index>& given) const {
        const std::int64_t count = indexed_.count(), step = indexed_.row().index;
        const std::byte* indices = run.at(indices_);
        std::atomic<bool> fits{true};
        run.pool->each(parts(count, kIndicesTogether), [&](std::int64_t task, int) {
            indexed_.each(task * kIndicesTogether, least(count, (task + 1) * kIndicesTogether), [&](const Offsets& at, std::int64_t length) {
                const Reader<Index> reader = given;
                const std::byte* index = indices + at.index;
                std::int64_t unused = 0;
                bool all = true;
                if (reader.count == 1)
                    for (std::int64_t i = 0; i < length; ++i, index += step) all &= reader.read_one(reader.axes[0], index, unused);
                else
                    for (std::int64_t i = 0; i < length; ++i, index += step) all &= reader.read(index, unused);
                if (!all) fits.store(false, std::memory_order_relaxed);
            });
        });
        return fits.load();
    }

    template <typename Index>
    void copy_slices(std::byte* to, const std::byte* data, const std::byte* index, std::int64_t length, const Reader<Index>& reader) const {
        if (is_element_ && !choice_.zeros) switch (slice_.run) {
            case 1: return copy_elements<std::uint8_t>(to, data, index, length, reader);
            case 4: return copy_elements<std::uint32_t>(to, data, index, length, reader);
            case 8: return copy_elements<std::uint64_t>(to, data, index, length, reader);
            default: break;
        }
        const Along along = places_.row();
        for (std::int64_t i = 0; i < length; ++i, to += along.to, data += along.data, index += along.index) {
            std::int64_t source = 0;
            if (reader.read(index, source))
                copy_slice(to, data + source);
            else
                clear_slice(to);
        }
    }

    // Of indices that lie within.
    template <typename Element, typename Index>
    void copy_elements(std::byte* to, const std::byte* data, const std::byte* index, std::int64_t length, const Reader<Index>& given) const {
        const Reader<Index> reader = given;
        const Along along = places_.row();
        const auto copy_all = [&](const auto& read) {
            for (std::int64_t i = 0; i < length; ++i, to += along.to, data += along.data, index += along.index) {
                std::int64_t source = 0;
                read(index, source);
                std::memcpy(to, data + source, sizeof(Element));
            }
        };
        if (reader.count == 1) {
            const Coordinate axis = reader.axes[0];
            copy_all([&](const std::byte* at, std::int64_t& source) { reader.read_one(axis, at, source); });
        } else {
            copy_all([&](const std::byte* at, std::int64_t& source) { reader.read(at, source); });
        }
    }

    void copy_slice(std::byte* to, const std::byte* from) const {
        each_row([&](std::int64_t dst, std::int64_t src) {
            movers().copy_rows(to + dst, row_.dst, from + src, row_.src, row_.size, static_cast<std::size_t>(slice_.run));
        });
    }

    void clear_slice(std::byte* to) const {
        each_row([&](std::int64_t dst, std::int64_t) {
            for (std::int64_t i = 0; i < row_.size; ++i)
                std::memset(to + dst + i * row_.dst, 0, static_cast<std::size_t>(slice_.run));
        });
    }

    template <typename F>
    void each_row(const F& visit) const {
        for (std::int64_t row = 0; row < rows_; ++row) {
            std::int64_t dst = 0, src = 0, rest = row;
            for (std::size_t i = slice_.axes.size(); i-- > 0; rest /= slice_.axes[i].size) {
                dst += rest % slice_.axes[i].size * slice_.axes[i].dst;
                src += rest % slice_.axes[i].size * slice_.axes[i].src;
            }
            visit(dst, src);
        }
    }

    std::string name_;
    Operand data_, indices_, to_;
    bool is_empty_;
    Choice choice_;
    Places indexed_;
    Places places_;
    Shape slice_;
    Stride row_{};
    std::int64_t rows_ = 1;
    bool is_element_ = false;
};

void require(const Spec& spec, bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(spec.kernel + ": " + what);
}

void check_operands(const Spec& spec) {
    require(spec, spec.inputs.size() == 2 && spec.outputs.size() == 1, "two inputs, one output");
    const Operand &data = spec.inputs[0], &indices = spec.inputs[1], &to = spec.outputs[0];
    require(spec, indices.element == Element::i32 || indices.element == Element::i64, "indices are i32 or i64");
    require(spec, data.itemsize > 0 && data.itemsize == to.itemsize && !to.is_constant(), "data and output differ");
}

void append(std::vector<std::int64_t>& sizes, const Operand& operand, std::size_t first, std::size_t end) {
    for (std::size_t i = first; i < end; ++i) sizes.push_back(operand.sizes[i]);
}

}  // namespace

std::unique_ptr<Step> make_gather(const Spec& spec, Store&) {
    check_operands(spec);
    const Operand &data = spec.inputs[0], &indices = spec.inputs[1], &to = spec.outputs[0];
    const auto axis = static_cast<std::size_t>(spec.integer("axis", -1)), batch = static_cast<std::size_t>(spec.integer("batch"));
    require(spec, axis < data.rank() && batch <= axis && batch <= indices.rank(), "there is no such axis");
    std::vector<std::int64_t> sizes;
    append(sizes, data, 0, axis);
    append(sizes, indices, batch, indices.rank());
    append(sizes, data, axis + 1, data.rank());
    require(spec, to.sizes == sizes, "the output has another shape");
    Choice choice;
    for (std::size_t i = 0; i < batch; ++i) {
        require(spec, indices.sizes[i] == data.sizes[i], "batch axes differ");
        choice.chosen.push_back({data.sizes[i], to.strides[i], data.strides[i], indices.strides[i]});
    }
    for (std::size_t i = batch; i < axis; ++i) choice.shared.push_back({data.sizes[i], to.strides[i], data.strides[i], 0});
    const std::size_t added = axis - batch;
    for (std::size_t i = batch; i < indices.rank(); ++i)
        choice.chosen.push_back({indices.sizes[i], to.strides[added + i], 0, indices.strides[i]});
    const std::size_t moved = axis + indices.rank() - batch;
    for (std::size_t i = axis + 1; i < data.rank(); ++i)
        choice.slice.push_back({data.sizes[i], to.strides[moved + i - axis - 1], data.strides[i]});
    choice.coordinates = {{data.sizes[axis], data.strides[axis]}};
    choice.wraps = spec.integer("wrap") != 0;
    choice.zeros = spec.integer("zero") != 0;
    return std::make_unique<Gather>(spec, std::move(choice));
}

std::unique_ptr<Step> make_gather_elements(const Spec& spec, Store&) {
    check_operands(spec);
    const Operand &data = spec.inputs[0], &indices = spec.inputs[1], &to = spec.outputs[0];
    const auto axis = static_cast<std::size_t>(spec.integer("axis", -1));
    require(spec, axis < data.rank() && indices.rank() == data.rank(), "there is no such axis");
    require(spec, to.sizes == indices.sizes, "the output has another shape");
    Choice choice;
    for (std::size_t i = 0; i < data.rank(); ++i) {
        require(spec, i == axis || indices.sizes[i] <= data.sizes[i], "more indices than elements");
        choice.chosen.push_back({to.sizes[i], to.strides[i], i == axis ? std::int64_t{0} : data.strides[i], indices.strides[i]});
    }
    choice.coordinates = {{data.sizes[axis], data.strides[axis]}};
    return std::make_unique<Gather>(spec, std::move(choice));
}

std::unique_ptr<Step> make_gather_nd(const Spec& spec, Store&) {
    check_operands(spec);
    const Operand &data = spec.inputs[0], &indices = spec.inputs[1], &to = spec.outputs[0];
    const auto batch = static_cast<std::size_t>(spec.integer("batch"));
    require(spec, indices.rank() > batch, "no coordinates");
    const std::size_t last = indices.rank() - 1;
    const std::size_t depth = batch + static_cast<std::size_t>(indices.sizes[last]);
    require(spec, depth <= data.rank() && depth - batch <= kMostCoordinates, "too many coordinates");
    std::vector<std::int64_t> sizes;
    append(sizes, indices, 0, last);
    append(sizes, data, depth, data.rank());
    require(spec, to.sizes == sizes, "the output has another shape");
    Choice choice;
    for (std::size_t i = 0; i < last; ++i) {
        require(spec, i >= batch || indices.sizes[i] == data.sizes[i], "batch axes differ");
        choice.chosen.push_back({indices.sizes[i], to.strides[i], i < batch ? data.strides[i] : std::int64_t{0}, indices.strides[i]});
    }
    for (std::size_t i = batch; i < depth; ++i) choice.coordinates.push_back({data.sizes[i], data.strides[i]});
    for (std::size_t i = depth; i < data.rank(); ++i) choice.slice.push_back({data.sizes[i], to.strides[last + i - depth], data.strides[i]});
    choice.coordinate_stride = indices.strides[last];
    return std::make_unique<Gather>(spec, std::move(choice));
}

}  // namespace dovetail
