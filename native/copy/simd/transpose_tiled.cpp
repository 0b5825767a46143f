// Transposes in tiles that fit the registers.
#include "copy/simd/copy_kernels.h"
#include "copy/simd/register_transpose.h"

namespace dovetail::DOVETAIL_ISA {
namespace {

template <int Width>
void transpose_elements(std::byte* dst, std::ptrdiff_t dst_step, const std::byte* src, std::ptrdiff_t src_step, std::int64_t rows,
                        std::int64_t columns) {
    if (transpose_by_tiles<Width, true>(dst, dst_step, src, src_step, rows, columns)) return;
    if (rows < columns)
        for (std::int64_t r = 0; r < rows; ++r) copy_rows(dst + r * Width, dst_step, src + r * src_step, Width, columns, Width);
    else
        for (std::int64_t c = 0; c < columns; ++c) copy_rows(dst + c * dst_step, Width, src + c * Width, src_step, rows, Width);
}

}  // namespace

void transpose(std::byte* dst, std::ptrdiff_t dst_step, const std::byte* src, std::ptrdiff_t src_step, std::int64_t rows,
               std::int64_t columns, std::size_t width) {
    switch (width) {
        case 1: return transpose_elements<1>(dst, dst_step, src, src_step, rows, columns);
        case 2: return transpose_elements<2>(dst, dst_step, src, src_step, rows, columns);
        case 4: return transpose_elements<4>(dst, dst_step, src, src_step, rows, columns);
        case 8: return transpose_elements<8>(dst, dst_step, src, src_step, rows, columns);
        default: break;
    }
    const auto step = static_cast<std::ptrdiff_t>(width);
    for (std::int64_t c = 0; c < columns; ++c) copy_rows(dst + c * dst_step, step, src + c * step, src_step, rows, width);
}

const CopyKernels& isa_copy_kernels() {
    static constexpr CopyKernels table = {stream,         stream_runs,  store_fence, copy_rows,        copy_columns,
                                          interleave,     deinterleave, transpose,   transpose_staged, transpose_batch_streaming,
                                          transpose_batch};
    return table;
}

}  // namespace dovetail::DOVETAIL_ISA
