// The inner loops of strided copies in one instruction set; copy/copy_kernels.h describes them.
#pragma once

#include "copy/copy_kernels.h"

namespace dovetail::DOVETAIL_ISA {

void copy_rows(std::byte* dst, std::ptrdiff_t dst_step, const std::byte* src, std::ptrdiff_t src_step, std::int64_t rows,
               std::size_t bytes);
void copy_columns(const ColumnCopy* columns, int count, std::int64_t rows);
void stream(std::byte* dst, const std::byte* src, std::size_t bytes);
void stream_runs(std::byte* dst, const std::byte* const* src, const std::size_t* bytes, int runs, int prefetch_runs);
void store_fence();
void interleave(std::byte* dst, const std::byte* const* src, int count, std::size_t width, std::int64_t rows, bool non_temporal);
void deinterleave(std::byte* const* dst, const std::byte* src, int count, std::size_t width, std::int64_t rows,
                  bool non_temporal);
void transpose(std::byte* dst, std::ptrdiff_t dst_step, const std::byte* src, std::ptrdiff_t src_step, std::int64_t rows,
               std::int64_t columns, std::size_t width);
void transpose_staged(const StagedTranspose& now, const StagingLoad& next, std::size_t width);
void transpose_batch_streaming(std::byte* dst, const MatrixBatch& from, std::size_t width);
void transpose_batch(std::byte* dst, std::ptrdiff_t dst_step, std::ptrdiff_t column_step, const MatrixBatch& from,
                     std::size_t width);
const CopyKernels& isa_copy_kernels();

}  // namespace dovetail::DOVETAIL_ISA
