#include "kernels/elementwise_bytecode.h"

#include <cstring>
#include <stdexcept>

namespace dovetail {

const std::vector<Opcode>& chain_opcodes() {
    static const std::vector<Opcode> table = [] {
        std::vector<Opcode> all;
        for (const Opcodes part : {DOVETAIL_CHOSEN(float_opcodes)(), DOVETAIL_CHOSEN(arithmetic_opcodes)(),
                                   DOVETAIL_CHOSEN(logical_opcodes)(), DOVETAIL_CHOSEN(cast_opcodes)()})
            all.insert(all.end(), part.first, part.first + part.count);
        return all;
    }();
    return table;
}

namespace {

constexpr std::int64_t kWords = 5;  // numbers of an instruction: opcode, destination, three operands

std::invalid_argument refused(const std::string& why) { return std::invalid_argument("chain: " + why); }

std::int64_t size_of(Element element) {
    switch (element) {
        case Element::f64:
        case Element::i64:
        case Element::u64: return 8;
        case Element::f32:
        case Element::i32:
        case Element::u32: return 4;
        case Element::f16:
        case Element::bf16:
        case Element::i16:
        case Element::u16: return 2;
        default: return 1;
    }
}

void give_type(Register& reg, Element element) {
    if (reg.is_typed && reg.element != element) throw refused("a register is used as two types");
    reg.is_typed = true;
    reg.element = element;
    reg.itemsize = size_of(element);
}

}  // namespace

void write_constant(std::byte* to, Element element, double value) {
    const auto put = [to](auto typed) { std::memcpy(to, &typed, sizeof typed); };
    switch (element) {
        case Element::f64: return put(value);
        case Element::f32: return put(static_cast<float>(value));
        case Element::i64: return put(static_cast<std::int64_t>(value));
        case Element::i32: return put(static_cast<std::int32_t>(value));
        case Element::i8: return put(static_cast<std::int8_t>(value));
        case Element::u8: return put(static_cast<std::uint8_t>(value));
        case Element::boolean: return put(static_cast<std::uint8_t>(value != 0));
        default: throw refused("a constant of this type");
    }
}

ChainCode read_chain_code(const Spec& spec) {
    ChainCode program;
    for (const Operand& input : spec.inputs) {
        program.registers.emplace_back();
        give_type(program.registers.back(), input.element);
    }
    for (const double constant : spec.reals("constants")) {
        program.registers.emplace_back();
        program.registers.back().constant = constant;
    }
    const auto& opcodes = chain_opcodes();
    const auto code = spec.integers("code");
    if (code.size() % kWords) throw refused("the code ends within an instruction");
    for (std::size_t at = 0; at < code.size(); at += kWords) {
        if (code[at] < 0 || code[at] >= static_cast<std::int64_t>(opcodes.size())) throw refused("no such opcode");
        const Opcode& opcode = opcodes[static_cast<std::size_t>(code[at])];
        if (code[at + 1] != static_cast<std::int64_t>(program.registers.size())) throw refused("registers are made in order");
        Instruction instruction{opcode.function, opcode.arity, static_cast<int>(code[at + 1]), {kNone, kNone, kNone}};
        for (int i = 0; i < opcode.arity; ++i) {
            const std::int64_t from = code[at + 2 + static_cast<std::size_t>(i)];
            if (from < 0 || from >= code[at + 1]) throw refused("an operand that was not made yet");
            give_type(program.registers[static_cast<std::size_t>(from)], opcode.operands[i]);
            program.registers[static_cast<std::size_t>(from)].last_use = static_cast<int>(program.instructions.size());
            instruction.operands[i] = static_cast<int>(from);
        }
        program.registers.emplace_back();
        give_type(program.registers.back(), opcode.result);
        program.instructions.push_back(instruction);
    }
    if (program.registers.size() > kMaxRegisters) throw refused("too many registers");
    for (const std::int64_t result : spec.integers("results")) {
        if (result < 0 || result >= static_cast<std::int64_t>(program.registers.size())) throw refused("no such result");
        program.results.push_back(static_cast<int>(result));
    }
    if (program.results.size() != spec.outputs.size() || spec.outputs.empty()) throw refused("one result for each output");
    for (std::size_t i = 0; i < spec.outputs.size(); ++i)
        give_type(program.registers[static_cast<std::size_t>(program.results[i])], spec.outputs[i].element);
    for (const auto* operands : {&spec.inputs, &spec.outputs})
        for (const Operand& operand : *operands)
            if (operand.itemsize != size_of(operand.element)) throw refused("an element type without arithmetic");
    return program;
}

}  // namespace dovetail
