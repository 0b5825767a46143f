// The instructions of elementwise chains.
#pragma once

#include <cstdint>
#include <vector>

#include "kernel.h"

namespace dovetail {

// What one instruction works on: rows of elements that lie dense in each row, rows `step` bytes apart. `to` may be one of `from`.
// Of an operand that `is_one` a row is a single element, which stands for all; instructions of two operands take one such.
struct Tile {
    std::int64_t rows;
    std::int64_t columns;
    std::byte* to;
    std::int64_t to_step;
    const std::byte* from[3];
    std::int64_t from_step[3];
    bool is_one[3];
};

using TileFunction = void (*)(const Tile& tile);

// `name` is an operation and the type it computes in: "add.f32". Instructions are numbered by their place in the table.
struct Opcode {
    const char* name;
    TileFunction function;
    Element result;
    int arity;
    Element operands[3];
};

struct Opcodes {
    const Opcode* first;
    int count;
};

// The instructions in the form for the processor at hand; names, types and places are the same on all.
const std::vector<Opcode>& chain_opcodes();

// The parts of the table, compiled once per instruction set.
DOVETAIL_IN_EVERY_ISA(Opcodes float_opcodes(); Opcodes arithmetic_opcodes(); Opcodes logical_opcodes(); Opcodes cast_opcodes();)

}  // namespace dovetail
