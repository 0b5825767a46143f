// The code of a chain, read and checked: registers, and the instructions that fill them.
//
// Registers are numbered: the inputs, then the constants, then what the instructions make, each made once.
#pragma once

#include "kernels/elementwise.h"
#include "kernel.h"

namespace dovetail {

constexpr std::size_t kMaxRegisters = 96;
constexpr int kNone = -1;

struct Register {
    bool is_typed = false;
    Element element = Element::other;
    std::int64_t itemsize = 0;
    int last_use = kNone;
    // Given by the step: a slot of scratch memory, the operand in whose memory its elements stand.
    int slot = kNone;
    int operand = kNone;
    double constant = 0;
    bool row_repeats = false;  // one row in its slot stands for all
    bool is_one = false;       // one element stands for a row: it needs no slot
    alignas(8) std::byte item[8] = {};  // a constant's element
};

struct Instruction {
    TileFunction function;
    int arity;
    int destination;
    int operands[3];
};

struct ChainCode {
    std::vector<Register> registers;
    std::vector<Instruction> instructions;
    std::vector<int> results;
};

// Throws std::invalid_argument for what is no chain.
ChainCode read_chain_code(const Spec& spec);

// A constant register's element.
void write_constant(std::byte* to, Element element, double value);

}  // namespace dovetail
