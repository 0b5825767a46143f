// Programs for ranges of sizes, made of one parametric program.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "program.h"
#include "python/block_arrays.h"

namespace dovetail {

// A size of an input, at which a symbol stands alone, and the range of the symbol: sizes a step apart, whose distances from the
// first one have digits in these radices, the lowest one first.
struct SymbolRange {
    std::size_t input;
    std::size_t axis;
    std::int64_t first;
    std::int64_t last;
    std::int64_t step;
    std::vector<std::int64_t> radices;
};

// An input, and the output that may be passed its memory. `order`: the axes of the caller's array as the model has them, where
// the output is the input with more rows; else empty.
struct SharedPorts {
    std::size_t input;
    std::size_t output;
    std::vector<int> order;
};

using ParametricShape = std::vector<Polynomial>;

struct ProgramRange {
    std::shared_ptr<ParametricProgram> steps;
    std::shared_ptr<ThreadPool> pool;
    std::shared_ptr<WeightCache> weights;
    std::shared_ptr<ArenaPool> arenas;
    std::vector<SymbolRange> symbols;
    std::vector<ParametricShape> inputs;
    std::vector<ParametricShape> outputs;
    std::int64_t max_bytes;  // of arena and outputs, beyond which the engine reports the limit on memory
    nanobind::object constants;

    // Throws std::invalid_argument for a range of programs with other numbers of inputs or outputs, or with wrong numbers.
    void check(std::size_t input_count, std::size_t output_count) const;

    // The program for these inputs, and its shapes; null for sizes outside the ranges, and where a kernel does not take them or
    // memory is lacking. `itemsizes` are those of the outputs.
    std::shared_ptr<Program> program_for(const std::vector<PyArrayObject*>& arrays, const std::vector<std::int64_t>& itemsizes,
                                         const std::vector<SharedPorts>& shared, std::vector<Shape>& input_shapes,
                                         std::vector<Shape>& output_shapes) const;
};

// Shapes of Python's rows: the base and the differences of each size.
std::vector<ParametricShape> shapes_of(const std::vector<std::vector<std::vector<std::int64_t>>>& rows);

bool has_shape(PyArrayObject* array, const Shape& shape);

}  // namespace dovetail
