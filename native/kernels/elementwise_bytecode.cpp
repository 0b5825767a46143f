#include "kernels/elementwise_bytecode.h"

#include <cstring>
#include <stdexcept>

namespace dovetail {

const std::vector<Opcode>& elementwise_opcodes() {
    const auto table = [] {
        std::vector<Opcode> all;
        for (const OpcodeTable table_part : {DOVETAIL_SELECT_ISA(float_opcodes)(), DOVETAIL_SELECT_ISA(arithmetic_opcodes)(),
                                             DOVETAIL_SELECT_ISA(logical_opcodes)(), DOVETAIL_SELECT_ISA(cast_opcodes)()})
            all.insert(all.end(), table_part.first, table_part.first + table_part.count);
        return all;
    };
    if (is_reproducible()) {
        static const std::vector<Opcode> reproducible = table();
        return reproducible;
    }
    static const std::vector<Opcode> fastest = table();
    return fastest;
}

namespace {

constexpr std::int64_t kInstructionNumbers = 5;  // integers of an instruction: opcode, destination, three operands

std::invalid_argument error(const std::string& message) { return std::invalid_argument("elementwise: " + message); }

void assign_type(Register& reg, Element element) {
    if (reg.is_typed && reg.element != element) throw error("a register is used as two types");
    reg.is_typed = true;
    reg.element = element;
    reg.itemsize = size_of(element);
}

}  // namespace

void write_constant(std::byte* to, Element element, double value) {
    const auto write = [to](auto typed) { std::memcpy(to, &typed, sizeof typed); };
    switch (element) {
        case Element::f64: return write(value);
        case Element::f32: return write(static_cast<float>(value));
        case Element::i64: return write(static_cast<std::int64_t>(value));
        case Element::i32: return write(static_cast<std::int32_t>(value));
        case Element::i8: return write(static_cast<std::int8_t>(value));
        case Element::u8: return write(static_cast<std::uint8_t>(value));
        case Element::boolean: return write(static_cast<std::uint8_t>(value != 0));
        default: throw error("a constant must be a float, an i64, i32, i8, u8 or boolean");
    }
}

Bytecode parse_bytecode(const Spec& spec) {
    Bytecode bytecode;
    for (const Operand& input : spec.inputs) {
        bytecode.registers.emplace_back();
        assign_type(bytecode.registers.back(), input.element);
    }
    for (const double constant : spec.reals("constants")) {
        bytecode.registers.emplace_back();
        bytecode.registers.back().constant = constant;
    }
    const auto& opcodes = elementwise_opcodes();
    const auto code = spec.integers("code");
    if (code.size() % kInstructionNumbers) throw error("the code ends within an instruction");
    for (std::size_t position = 0; position < code.size(); position += kInstructionNumbers) {
        if (code[position] < 0 || code[position] >= static_cast<std::int64_t>(opcodes.size()))
            throw error("there is no such opcode");
        const Opcode& opcode = opcodes[static_cast<std::size_t>(code[position])];
        if (code[position + 1] != static_cast<std::int64_t>(bytecode.registers.size()))
            throw error("destinations must be consecutive registers");
        Instruction instruction{
            opcode.function, opcode.is_cheap, opcode.arity, static_cast<int>(code[position + 1]), {kNone, kNone, kNone}};
        for (int i = 0; i < opcode.arity; ++i) {
            const std::int64_t from = code[position + 2 + static_cast<std::size_t>(i)];
            if (from < 0 || from >= code[position + 1]) throw error("an operand must be an earlier register");
            assign_type(bytecode.registers[static_cast<std::size_t>(from)], opcode.operands[i]);
            bytecode.registers[static_cast<std::size_t>(from)].last_use = static_cast<int>(bytecode.instructions.size());
            instruction.operands[i] = static_cast<int>(from);
        }
        bytecode.registers.emplace_back();
        assign_type(bytecode.registers.back(), opcode.result);
        bytecode.instructions.push_back(instruction);
    }
    if (bytecode.registers.size() > kMaxRegisters) throw error("too many registers");
    for (const std::int64_t result : spec.integers("results")) {
        if (result < 0 || result >= static_cast<std::int64_t>(bytecode.registers.size()))
            throw error("a result must be a register");
        bytecode.results.push_back(static_cast<int>(result));
    }
    if (bytecode.results.size() != spec.outputs.size() || spec.outputs.empty()) throw error("needs one result for each output");
    for (std::size_t i = 0; i < spec.outputs.size(); ++i)
        assign_type(bytecode.registers[static_cast<std::size_t>(bytecode.results[i])], spec.outputs[i].element);
    for (const auto* operands : {&spec.inputs, &spec.outputs})
        for (const Operand& operand : *operands)
            if (operand.itemsize != size_of(operand.element)) throw error("operands must have an element type with arithmetic");
    return bytecode;
}

}  // namespace dovetail
