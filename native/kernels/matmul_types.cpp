// Matrix products of f64 and integers. Each element is summed in the order of the depth; integers wrap around.
#include "kernels/matmul_types.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "int_math.h"
#include "kernels/kernels.h"

namespace dovetail {
namespace {

constexpr std::int64_t kDepth = 256;  // rows of b that are packed together
constexpr std::int64_t kRows = 64;    // rows of one task

template <typename T>
class PlainMatMul : public Kernel {
    static constexpr auto kSize = static_cast<std::int64_t>(sizeof(T));
    static constexpr std::int64_t kColumns = kProductColumns<T>;

public:
    explicit PlainMatMul(const Spec& spec) : a_(spec.inputs[0]), b_(spec.inputs[1]), y_(spec.outputs[0]) {
        const std::size_t rank = y_.rank();
        rows_ = y_.sizes[rank - 2];
        columns_ = y_.sizes[rank - 1];
        depth_ = a_.sizes.back();
        for (std::size_t i = 0; i + 2 < rank; ++i) batches_ *= y_.sizes[i];
        row_blocks_ = ceil_div(rows_, kRows);
        column_blocks_ = ceil_div(columns_, kColumns);
    }

    std::string name() const override { return std::string("plain_matmul ") + name_of(y_.element) + " " + name_of(isa()); }

    // Per worker: sums of the rows of a task, one packed block of b, and kProductRows rows of a.
    std::size_t scratch_bytes() const override {
        return static_cast<std::size_t>(((kRows + kDepth) * kColumns + kProductRows * kDepth) * kSize);
    }

    void run(const Run& run) const override {
        if (y_.count() == 0) return;
        run.pool->parallel_for(batches_ * row_blocks_ * column_blocks_, [&](std::int64_t task, int worker) {
            const std::int64_t column = task % column_blocks_, row = task / column_blocks_ % row_blocks_;
            multiply(run, task / column_blocks_ / row_blocks_, row * kRows, column * kColumns, worker);
        });
    }

private:
    void multiply(const Run& run, std::int64_t batch, std::int64_t first_row, std::int64_t first_column, int worker) const {
        T* sums = reinterpret_cast<T*>(run.scratch_of(worker));
        T* packed_b = sums + kRows * kColumns;
        T* packed_a = packed_b + kDepth * kColumns;
        const std::int64_t rows = min(kRows, rows_ - first_row), columns = min(kColumns, columns_ - first_column);
        const Matrix a = matrix(run, a_, batch), b = matrix(run, b_, batch), y = matrix(run, y_, batch);
        std::memset(static_cast<void*>(sums), 0, static_cast<std::size_t>(kRows * kColumns * kSize));
        for (std::int64_t k = 0; k < depth_; k += kDepth) {
            const std::int64_t depth = min(kDepth, depth_ - k);
            // Rows of b that are read by many rows of a are packed: their stride may cause set conflicts in L1.
            const bool is_dense = b.column == kSize && b.row % kSize == 0 && columns == kColumns && rows <= 2 * kProductRows;
            const std::byte* from = b.base + k * b.row + first_column * b.column;
            if (!is_dense) pack(from, b.row, b.column, depth, columns, packed_b, kColumns);
            for (std::int64_t row = 0; row < rows; row += kProductRows) {
                const std::int64_t count = min(kProductRows, rows - row);
                const std::byte* left = a.base + (first_row + row) * a.row + k * a.column;
                const bool is_whole = count == kProductRows && a.row % kSize == 0 && a.column % kSize == 0;
                if (!is_whole) pack(left, a.row, a.column, count, depth, packed_a, kDepth);
                const T* elements = is_whole ? reinterpret_cast<const T*>(left) : packed_a;
                function_({elements, is_whole ? a.row / kSize : kDepth, is_whole ? a.column / kSize : 1,
                           is_dense ? reinterpret_cast<const T*>(from) : packed_b, is_dense ? b.row / kSize : kColumns, depth,
                           sums + row * kColumns});
            }
        }
        for (std::int64_t row = 0; row < rows; ++row)
            for (std::int64_t column = 0; column < columns; ++column)
                std::memcpy(y.base + (first_row + row) * y.row + (first_column + column) * y.column,
                            sums + row * kColumns + column, sizeof(T));
    }

    // Copies to rows `width` elements apart; elements without a source are 0.
    static void pack(const std::byte* from, std::int64_t row_step, std::int64_t column_step, std::int64_t rows,
                     std::int64_t columns, T* to, std::int64_t width) {
        for (std::int64_t row = 0; row < rows; ++row, to += width) {
            for (std::int64_t column = 0; column < columns; ++column)
                std::memcpy(to + column, from + row * row_step + column * column_step, sizeof(T));
            std::fill(to + columns, to + width, T{});
        }
    }

    struct Matrix {
        std::byte* base;
        std::int64_t row;
        std::int64_t column;
    };

    // One matrix of an operand; axes before the last two broadcast to those of the output.
    Matrix matrix(const Run& run, const Operand& operand, std::int64_t batch) const {
        std::byte* base = run.at(operand);
        const std::size_t rank = operand.rank(), missing = y_.rank() - rank;
        for (std::size_t i = y_.rank() - 2; i-- > 0; batch /= y_.sizes[i])
            if (i >= missing && operand.sizes[i - missing] != 1) base += batch % y_.sizes[i] * operand.strides[i - missing];
        return {base, operand.strides[rank - 2], operand.strides[rank - 1]};
    }

    Operand a_, b_, y_;
    std::int64_t rows_ = 0, columns_ = 0, depth_ = 0;
    std::int64_t batches_ = 1, row_blocks_ = 0, column_blocks_ = 0;
    ProductFunction<T> function_ = DOVETAIL_SELECT_ISA(product_function<T>)();
};

void require(const Spec& spec, bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(spec.kernel + ": " + what);
}

void check_batch(const Spec& spec, const Operand& operand, const Operand& y) {
    require(spec, operand.rank() >= 2 && operand.rank() <= y.rank(), "operands must be matrices");
    for (std::size_t i = 0; i + 2 < operand.rank(); ++i) {
        const std::int64_t size = operand.sizes[i];
        require(spec, size == 1 || size == y.sizes[i + y.rank() - operand.rank()], "operands must broadcast to the output");
    }
}

}  // namespace

std::unique_ptr<Kernel> make_plain_matmul(const Spec& spec, WeightCache&) {
    require(spec, spec.inputs.size() == 2 && spec.outputs.size() == 1, "needs 2 inputs and 1 output");
    const Operand &a = spec.inputs[0], &b = spec.inputs[1], &y = spec.outputs[0];
    check_batch(spec, a, y);
    check_batch(spec, b, y);
    require(spec,
            a.sizes.back() == b.sizes[b.rank() - 2] && a.sizes[a.rank() - 2] == y.sizes[y.rank() - 2] &&
                b.sizes.back() == y.sizes.back(),
            "the shapes of the operands disagree");
    require(spec, a.element == y.element && b.element == y.element, "operands must have equal element types");
    switch (y.element) {
        case Element::f64: return std::make_unique<PlainMatMul<double>>(spec);
        case Element::i8:
        case Element::u8: return std::make_unique<PlainMatMul<std::uint8_t>>(spec);
        case Element::i16:
        case Element::u16: return std::make_unique<PlainMatMul<std::uint16_t>>(spec);
        case Element::i32:
        case Element::u32: return std::make_unique<PlainMatMul<std::uint32_t>>(spec);
        case Element::i64:
        case Element::u64: return std::make_unique<PlainMatMul<std::uint64_t>>(spec);
        default: throw std::invalid_argument("plain_matmul: element type must be f64 or an integer");
    }
}

}  // namespace dovetail
