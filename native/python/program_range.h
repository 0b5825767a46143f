// Programs for ranges of sizes, made from one parametric program.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "program.h"
#include "python/block_arrays.h"

namespace dovetail {

// An input size that is a single symbol, and the range of the symbol. The sizes of the range have a constant step; the digits
// of their distances from the first size have these radices, the lowest digit first.
struct SymbolRange {
    std::size_t input;
    std::size_t axis;
    std::int64_t first;
    std::int64_t last;
    std::int64_t step;
    std::vector<std::int64_t> radices;
};

// An input and an output that may share memory: a run may pass the memory of the input for the output. `order`: the order in
// which the model has the axes of the caller's array, if the output is the input extended by rows; else empty.
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
    std::int64_t max_bytes;  // limit of the bytes of arena and outputs, above which the engine reports an error
    nanobind::object constants;

    // Throws std::invalid_argument if the program has another number of inputs or outputs, or for invalid orders, symbols or
    // ranges.
    void check(std::size_t input_count, std::size_t output_count) const;

    // Returns the program for these inputs, and its shapes. Returns null if sizes are outside the ranges, if a kernel does not
    // support them, or if memory is exhausted. `itemsizes` are those of the outputs.
    std::shared_ptr<Program> program_for(const std::vector<PyArrayObject*>& arrays, const std::vector<std::int64_t>& itemsizes,
                                         const std::vector<SharedPorts>& shared, std::vector<Shape>& input_shapes,
                                         std::vector<Shape>& output_shapes) const;
};

// Converts shapes as Python passes them: the base and the differences of each size.
std::vector<ParametricShape> shapes_of(const std::vector<std::vector<std::vector<std::int64_t>>>& rows);

bool has_shape(PyArrayObject* array, const Shape& shape);

}  // namespace dovetail
