#include "python/program_range.h"

#include <algorithm>
#include <stdexcept>

#include "python/gil.h"

namespace dovetail {
namespace {

Shape shape_at(const ParametricShape& sizes, const std::vector<std::int64_t>& factors) {
    Shape shape;
    for (const Polynomial& size : sizes) shape.push_back(static_cast<npy_intp>(size.at(factors)));
    return shape;
}

}  // namespace

void ProgramRange::check(std::size_t input_count, std::size_t output_count) const {
    if (inputs.size() != input_count || outputs.size() != output_count)
        throw std::invalid_argument("needs a shape for each input and output of the program");
    std::size_t digits = 0;
    for (const SymbolRange& symbol : symbols) digits += symbol.radices.size() + 1;
    if (!steps->takes(digits)) throw std::invalid_argument("needs a range for each symbol");
    for (const auto* shapes : {&inputs, &outputs})
        for (const ParametricShape& shape : *shapes)
            for (const Polynomial& size : shape)
                if (size.orders != steps->orders()) throw std::invalid_argument("needs a difference for each order");
    for (const SymbolRange& symbol : symbols)
        if (symbol.step < 1 || symbol.first < 0 || symbol.last < symbol.first || symbol.input >= input_count ||
            symbol.axis >= inputs[symbol.input].size() ||
            std::any_of(symbol.radices.begin(), symbol.radices.end(), [](auto radix) { return radix < 1; }))
            throw std::invalid_argument("needs an axis of an input for each symbol");
}

std::shared_ptr<Program> ProgramRange::program_for(const std::vector<PyArrayObject*>& arrays,
                                                   const std::vector<std::int64_t>& itemsizes,
                                                   const std::vector<SharedPorts>& shared, std::vector<Shape>& input_shapes,
                                                   std::vector<Shape>& output_shapes) const {
    std::vector<std::int64_t> digits;
    for (const SymbolRange& symbol : symbols) {
        PyArrayObject* const array = arrays[symbol.input];
        if (static_cast<std::size_t>(PyArray_NDIM(array)) <= symbol.axis) return nullptr;
        const std::int64_t size = PyArray_DIMS(array)[symbol.axis];
        if (size < symbol.first || size > symbol.last || (size - symbol.first) % symbol.step != 0) return nullptr;
        std::int64_t rest = (size - symbol.first) / symbol.step;
        for (const std::int64_t radix : symbol.radices) {
            digits.push_back(rest % radix);
            rest /= radix;
        }
        digits.push_back(rest);
    }
    try {
        const std::vector<std::int64_t> factors = steps->factors_at(digits);
        std::vector<ByteRange> bytes;
        std::int64_t output_bytes = 0;
        for (std::size_t i = 0; i < arrays.size(); ++i) {
            input_shapes.push_back(shape_at(inputs[i], factors));
            if (!has_shape(arrays[i], input_shapes.back())) return nullptr;
            bytes.push_back({0, static_cast<std::int64_t>(PyArray_NBYTES(arrays[i]))});
        }
        for (std::size_t i = 0; i < outputs.size(); ++i) {
            output_shapes.push_back(shape_at(outputs[i], factors));
            std::int64_t count = itemsizes[i];
            for (const npy_intp size : output_shapes.back())
                if (size < 0 || __builtin_mul_overflow(count, static_cast<std::int64_t>(size), &count)) return nullptr;
            bytes.push_back({0, count});
            if (__builtin_add_overflow(output_bytes, count, &output_bytes)) return nullptr;
        }
        auto program = std::make_shared<Program>(pool, weights, arenas, 0, std::move(bytes));
        for (const SharedPorts& ports : shared) program->ask_sharing(1 + ports.input, 1 + arrays.size() + ports.output);
        {
            const GilRelease released;
            steps->fill(*program, factors);
        }
        const bool fits = output_bytes <= max_bytes && program->range(0).second <= max_bytes - output_bytes;
        return fits ? program : nullptr;
    } catch (const std::exception&) {
        // The engine reports the error.
        return nullptr;
    }
}

std::vector<ParametricShape> shapes_of(const std::vector<std::vector<std::vector<std::int64_t>>>& rows) {
    std::vector<ParametricShape> shapes;
    for (const auto& row : rows) {
        ParametricShape& shape = shapes.emplace_back();
        for (const auto& numbers : row)
            shape.emplace_back(numbers.at(0), std::vector<std::int64_t>(numbers.begin() + 1, numbers.end()));
    }
    return shapes;
}

bool has_shape(PyArrayObject* array, const Shape& shape) {
    return static_cast<std::size_t>(PyArray_NDIM(array)) == shape.size() &&
           std::equal(shape.begin(), shape.end(), PyArray_DIMS(array));
}

}  // namespace dovetail
