// The instructions of the fused elementwise kernel.
#pragma once

#include <cstdint>
#include <vector>

#include "kernel.h"

namespace dovetail {

// The operands of one instruction: rows of contiguous elements, `step` bytes apart. `to` may equal an element of `from`. A row of
// an operand with `is_scalar` is a single element; only instructions of two operands support a scalar.
struct InstructionTile {
    std::int64_t rows;
    std::int64_t columns;
    std::byte* to;
    std::int64_t to_step;
    const std::byte* from[3];
    std::int64_t from_step[3];
    bool is_scalar[3];
};

using InstructionFunction = void (*)(const InstructionTile& tile);

// `name` is an operation and its type: "add.f32". The integer that stands for an instruction in bytecode is its index in the
// table.
struct Opcode {
    const char* name;
    InstructionFunction function;
    Element result;
    int arity;
    Element operands[3];
    bool is_cheap = false;  // computes faster than memory delivers its operands
};

struct OpcodeTable {
    const Opcode* first;
    int count;
};

// The table of instructions for the instruction set in use; names, types and indices are the same for all instruction sets.
const std::vector<Opcode>& elementwise_opcodes();

// The parts of the table, compiled once per instruction set.
DOVETAIL_DECLARE_PER_ISA(OpcodeTable float_opcodes(); OpcodeTable arithmetic_opcodes(); OpcodeTable logical_opcodes();
                         OpcodeTable cast_opcodes();)

}  // namespace dovetail
