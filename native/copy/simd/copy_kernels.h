// The inner loops of movement in one instruction set: see movers.h for what each does.
#pragma once

#include "copy/copy_kernels.h"

namespace dovetail::DOVETAIL_ISA {

void copy_rows(std::byte* dst, std::ptrdiff_t dst_step, const std::byte* src, std::ptrdiff_t src_step, std::int64_t rows,
               std::size_t bytes);
void copy_columns(const ColumnRows* columns, int count, std::int64_t rows);
void stream(std::byte* dst, const std::byte* src, std::size_t bytes);
void stream_runs(std::byte* dst, const std::byte* const* src, const std::size_t* bytes, int runs, int ahead);
void settle();
void interleave(std::byte* dst, const std::byte* const* src, int count, std::size_t width, std::int64_t rows, bool past_cache);
void deinterleave(std::byte* const* dst, const std::byte* src, int count, std::size_t width, std::int64_t rows, bool past_cache);
void transpose(std::byte* dst, std::ptrdiff_t dst_step, const std::byte* src, std::ptrdiff_t src_step, std::int64_t rows,
               std::int64_t columns, std::size_t width);
void turn(const Turned& now, const Fetched& next, std::size_t width);
void turn_matrices(std::byte* dst, const Matrices& from, std::size_t width);
void turn_near(std::byte* dst, std::ptrdiff_t dst_step, std::ptrdiff_t column_step, const Matrices& from, std::size_t width);
const Movers& own_movers();

}  // namespace dovetail::DOVETAIL_ISA
