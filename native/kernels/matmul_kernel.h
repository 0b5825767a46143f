// The kernel of matrix multiplication, batch by batch. The right operand is a constant or an operand of floats (matmul.cpp), or
// consists of weights of few bits (compressed_matmul.cpp).
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "int_math.h"
#include "kernels/bf16_products.h"
#include "kernels/compressed_weights.h"
#include "kernels/epilogue.h"
#include "kernels/runtime_packing.h"
#include "kernels/weight_packing.h"

namespace dovetail {

inline std::int64_t round_to_line(std::int64_t floats) { return ceil_div(floats, 16) * 16; }

// Strides of a batch of matrices, in floats.
struct BatchStrides {
    Sizes batch;  // one stride per batch axis of the output; zero broadcasts
    std::int64_t row = 0, column = 0;
};

class MatMul : public Kernel {
public:
    MatMul(const Spec& spec, WeightCache& cache);
    void run(const Run& run) const override;
    std::size_t scratch_bytes() const override;
    std::size_t shared_scratch_bytes() const override;
    bool flushes_subnormals() const override { return true; }
    std::string name() const override;

private:
    static constexpr std::int64_t kDecodedTiles = 40;  // tiles that read one decoding of weights in bf16
    // Ways in which the right operand is read.
    enum class RightOperand { constant, in_place, packed, dots, compressed };
    struct Task {
        std::int64_t batch;
        std::size_t first_panel, last_panel;
        std::int64_t first_tile, last_tile;
        std::int64_t stride;  // distance to this thread's next chunk, in chunks
        std::int64_t a, y;    // offsets of the batch, in floats
    };
    // Offsets of the operands of one batch, in floats.
    struct BatchOffsets {
        std::int64_t a, b, y;
    };
    struct Workspace {
        float *a, *b, *y, *addend;
    };
    // A block of rows of a panel of the right operand, with the stride of the rows.
    struct Block {
        const float* from = nullptr;
        std::int64_t step = 0;
        std::int64_t first = 0, depth = 0;
        WeightPrefetch prefetch{};
    };

    void join_batches();
    void choose_variant(const Spec& spec, WeightCache& cache);
    std::int64_t offset(const BatchStrides& strides, std::int64_t batch) const;
    std::int64_t batches() const;
    std::int64_t row_of(std::int64_t tile) const { return tile * small_count_ + std::min(tile, large_tiles_); }
    void run_task(const Run& run, const Task& task, int worker) const;
    Workspace workspace_of(const Run& run, int worker) const;
    std::int64_t row_floats() const;
    // Rows of a transposed left operand are copied once, not for each panel, where the copy of the operand is small enough.
    void copy_rows(const Run& run) const;
    // Floats of a row of that copy; one line more avoids set conflicts between rows.
    std::int64_t copy_pitch() const { return round_to_line(depth_) + 16; }
    // The number of rows that are copied together.
    std::int64_t copied_rows() const {
        return right_ == RightOperand::compressed && bf16_ != nullptr ? std::min(rows_, kDecodedTiles * kMaxRows) : kMaxRows;
    }
    const float* rows_of(const Run& run, const Task& task, const Workspace& workspace, std::int64_t row,
                         std::int64_t count) const;
    Block columns_of(const Run& run, const Task& task, const Workspace& workspace, std::size_t index) const;
    Block constant_columns(const Task& task, std::size_t index, std::int64_t block) const;
    WeightPrefetch prefetch_of(const Task& task, std::size_t index, std::int64_t block) const;
    void set_initial(GemmTile& tile, const Block& columns) const;
    // `initial`: values of the accumulators, one panel wide; null: zero.
    void multiply(const Run& run, const Task& task, const Workspace& workspace, std::size_t panel, std::int64_t tile,
                  const float* rows, const Block& columns, const float* initial = nullptr) const;
    void set_residual(const Run& run, const Task& task, GemmTile& tile, float* to, const Panel& panel, std::int64_t row,
                      std::int64_t count) const;
    void multiply_dots(const Run& run, const Task& task, const Workspace& workspace) const;
    void multiply_dots(const Run& run, const BatchOffsets& offsets, const Workspace& workspace, std::int64_t row,
                       std::int64_t rows, std::int64_t column, std::int64_t count) const;
    // Compressed weights (compressed_matmul.cpp).
    bool has_few_rows() const { return !is_reproducible_ && tiling_.tiles == 1 && rows_ <= compressed_kernels_.max_rows; }
    std::int64_t first_position(std::int64_t block) const;
    std::int64_t row_pitch() const { return round_to_line(compressed_.blocks * compressed_.padded_block()); }
    Block decoded_columns(const Workspace& workspace, std::size_t index, std::int64_t block) const;
    void multiply_decoded_in_bf16(const Run& run, const Task& task, const Workspace& workspace) const;
    void decode_and_multiply(const Run& run, const Task& task, const Workspace& workspace, std::size_t panel) const;
    void multiply_few_rows(const Run& run, const Task& task, const Workspace& workspace) const;
    void multiply_byte_rows(const Run& run, const Task& task, const Workspace& workspace) const;
    float* after_decoded(const Workspace& workspace) const {
        return workspace.b + (ceil_div(depth_, blocks_) + 64) * kMaxVectors * 16;
    }

    const bool is_reproducible_ = is_reproducible();
    Operand a_, b_, bias_operand_, y_;
    Epilogue epilogue_;
    const GemmKernels* kernels_ = &gemm_kernels();
    const PackingKernels& packing_ = packing_kernels();
    Sizes batch_;
    std::int64_t rows_ = 0, depth_ = 0, columns_ = 0;
    std::int64_t words_ = 0;  // the depth in packed floats, which in bf16 hold two elements
    BatchStrides a, b, y, bias, residual;
    bool has_bias_ = false;
    float scale_ = 1;
    std::shared_ptr<const float> bias_row_;  // a constant bias that is equal for all rows; else null
    RightOperand right_ = RightOperand::constant;
    Tiling tiling_{};
    std::int64_t small_count_ = 0,
                 large_tiles_ = 0;  // rows of a small tile; number of large tiles, which come first and have one row more
    GemmTile shared_fields_{};      // the fields that all tiles share
    std::vector<Panel> panels_;
    std::int64_t chunk_panels_ = 1;
    bool copies_all_rows_ = false;
    bool interleaves_batches_ = false;         // a task computes its columns of all batches
    std::vector<BatchOffsets> batch_offsets_;  // of interleaved batches
    std::int64_t blocks_ = 1;  // number of blocks along the depth; the rows and columns of one block stay in cache
    std::vector<std::int64_t> row_offsets_;
    std::vector<std::shared_ptr<const float>> packed_;  // one per batch, or one for all batches
    const CompressedKernels& compressed_kernels_ = DOVETAIL_SELECT_ISA(compressed_kernels);
    CompressedWeights compressed_{};
    const ByteRowsKernels* byte_rows_ = nullptr;  // not null: the rows are rounded to bytes
    const Bf16Kernels* bf16_ = nullptr;           // not null: operands are rounded to bf16
};

}  // namespace dovetail
