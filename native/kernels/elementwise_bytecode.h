// The bytecode of the fused elementwise kernel, parsed and checked.
//
// Registers are numbered: the inputs, then the constants, then the results of the instructions, each assigned once.
#pragma once

#include "kernel.h"
#include "kernels/elementwise.h"

namespace dovetail {

constexpr std::size_t kMaxRegisters = 96;
constexpr int kNone = -1;

struct Register {
    bool is_typed = false;
    Element element = Element::other;
    std::int64_t itemsize = 0;
    int last_use = kNone;
    // Both members are set by the kernel: the index of the slot of scratch memory, or of the operand whose memory holds the
    // elements.
    int slot = kNone;
    int operand = kNone;
    double constant = 0;
    bool row_repeats = false;           // one row in the slot serves all rows
    bool is_scalar = false;             // one element serves a whole row; needs no slot
    alignas(8) std::byte item[8] = {};  // the element of a constant
};

struct Instruction {
    InstructionFunction function;
    bool is_cheap;
    int arity;
    int destination;
    int operands[3];
};

struct Bytecode {
    std::vector<Register> registers;
    std::vector<Instruction> instructions;
    std::vector<int> results;
};

// Throws std::invalid_argument for invalid bytecode.
Bytecode parse_bytecode(const Spec& spec);

// Writes the element of a constant register.
void write_constant(std::byte* to, Element element, double value);

}  // namespace dovetail
