#include "kernels/compressed_weights.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "int_math.h"
#include "kernels/weight_packing.h"

namespace dovetail {

namespace {

WeightFormat format_of(const Spec& spec) {
    static const std::pair<const char*, WeightFormat> table[] = {
        {"table2", WeightFormat::table2}, {"table4", WeightFormat::table4}, {"i8", WeightFormat::i8},
        {"f8e4m3", WeightFormat::f8e4m3}, {"f8e5m2", WeightFormat::f8e5m2}, {"f16", WeightFormat::f16},
        {"bf16", WeightFormat::bf16},
    };
    const std::string name = spec.text("format");
    for (const auto& [candidate, format] : table)
        if (name == candidate) return format;
    throw std::invalid_argument(spec.kernel + ": there is no format of weights " + name);
}

// The bits of a code in the source, in which codes may be packed along the axis of depth (0) or columns (1), else -1.
std::uint32_t code_at(const Operand& codes, std::int64_t column, std::int64_t k, int bits, std::int64_t packed_axis) {
    std::int64_t shift = 0;
    if (packed_axis >= 0) {
        std::int64_t& index = packed_axis == 0 ? k : column;
        shift = index * bits % 8;
        index = index * bits / 8;
    }
    const std::byte* from = codes.constant + column * codes.strides[1] + k * codes.strides[0];
    if (bits == 16) {
        std::uint16_t code;
        std::memcpy(&code, from, sizeof code);
        return code;
    }
    return static_cast<std::uint32_t>(*from) >> shift & ((1u << bits) - 1);
}

void check(const Spec& spec, bool holds, const char* text) {
    if (!holds) throw std::invalid_argument(spec.kernel + ": " + text);
}

// Orders the table of codes in two's complement by number, so that it has_consecutive_numbers(), and returns the bit of a code
// to invert; 0 for other tables.
std::uint32_t order_signed_numbers(CompressedWeights& weights, std::uint32_t sign_bit) {
    CompressedWeights ordered = weights;
    std::rotate(ordered.table, ordered.table + sign_bit, ordered.table + kTableSize);
    if (has_consecutive_numbers(weights) || !has_consecutive_numbers(ordered)) return 0;
    weights = ordered;
    return sign_bit;
}

float number_at(const Operand& operand, std::int64_t row, std::int64_t column) {
    // Constants of a mapped file may be unaligned.
    float number;
    std::memcpy(&number, operand.constant + row * operand.strides[0] + column * operand.strides[1], sizeof number);
    return number;
}

}  // namespace

int bits_of(WeightFormat format) {
    switch (format) {
        case WeightFormat::table2: return 2;
        case WeightFormat::table4: return 4;
        case WeightFormat::f16:
        case WeightFormat::bf16: return 16;
        default: return 8;
    }
}

std::int64_t CompressedWeights::padded_block() const { return words * (32 / bits_of(format)); }

bool has_consecutive_numbers(const CompressedWeights& weights) {
    if (weights.format == WeightFormat::i8) return true;
    const int count = weights.format == WeightFormat::table2 ? 4 : weights.format == WeightFormat::table4 ? 16 : 0;
    for (int i = 1; i < count; ++i)
        if (weights.table[i] != weights.table[0] + static_cast<float>(i)) return false;
    return count != 0;
}

CompressedWeights compress_weights(const Spec& spec, WeightCache& cache, std::int64_t depth, std::int64_t columns, int lanes) {
    CompressedWeights made{};
    made.format = format_of(spec);
    made.depth = depth;
    made.columns = columns;
    made.lanes = lanes;
    made.block = spec.integer("block");
    check(spec, made.block > 0 && depth > 0, "a block and the depth must have at least 1 position");
    made.blocks = ceil_div(depth, made.block);
    made.has_points = spec.integer("has_points") != 0;
    const std::int64_t packed_axis = spec.integer("packed_axis");
    const int bits = bits_of(made.format), codes_per_word = 32 / bits;
    made.words = ceil_div(made.block, codes_per_word);
    made.block_bytes = lanes * 4 * (1 + (made.has_points ? 1 : 0) + made.words);
    const Operand &codes = spec.inputs.at(1), &scales = spec.inputs.at(2);
    // Codes are stored with these bits inverted. Unsigned bytes are numbers less 128.
    std::uint32_t flip = made.format == WeightFormat::i8 && codes.element == Element::u8 ? 0x80 : 0;
    if (bits < 8) {
        const auto table = spec.reals("table");
        check(spec, table.size() == (std::size_t{1} << bits), "a table must have one number for each code");
        for (std::size_t i = 0; i < kTableSize; ++i) made.table[i] = static_cast<float>(table[i % table.size()]);
        flip = order_signed_numbers(made, 1u << (bits - 1));
    }

    const Operand& points = spec.inputs.at(made.has_points ? 3 : 2);
    for (const Operand* operand : {&scales, &points})
        check(spec,
              operand->is_constant() && operand->element == Element::f32 && operand->rank() == 2 &&
                  operand->sizes[0] == columns && operand->sizes[1] == made.blocks,
              "scales and points must be constant f32 [columns, blocks]");
    const std::int64_t bytes = ceil_div((packed_axis == 1 ? columns : depth) * bits, 8);
    // The last block may be padded.
    const bool has_whole_blocks = packed_axis == 0 && made.block * bits % 8 == 0 && codes.rank() == 2 &&
                                  codes.sizes[0] == made.blocks * made.block * bits / 8;
    check(spec,
          codes.is_constant() && codes.rank() == 2 &&
              (codes.sizes[0] == (packed_axis == 0 ? bytes : depth) || has_whole_blocks) &&
              codes.sizes[1] == (packed_axis == 1 ? bytes : columns) && codes.itemsize == (bits == 16 ? 2 : 1),
          "codes must be constant [depth, columns]");

    std::string key = packing_key(cache, codes.constant, "compressed",
                                  {static_cast<std::int64_t>(made.format), depth, columns, made.block, packed_axis, flip, lanes,
                                   codes.strides[0], codes.strides[1]});
    // An address in front makes the whole key one of this process, as it is if any of the constants lies outside the base.
    for (const Operand* operand : {&scales, &points}) {
        const std::string part = cache.key_of(operand->constant);
        key = WeightCache::is_relative(part) ? key + ' ' + part : part + ' ' + key;
    }
    key += made.has_points ? " points" : "";
    const std::int64_t strips = ceil_div(columns, static_cast<std::int64_t>(lanes));
    // A prefetch may read beyond the end, but no load does.
    const auto count = static_cast<std::size_t>(strips * made.blocks * made.block_bytes / 4);
    made.strips = cache.get_or_create_floats(key, count, [&] {
        auto packed = aligned_floats(count);
        auto* to = reinterpret_cast<std::uint32_t*>(packed.get());
        for (std::int64_t strip = 0; strip < strips; ++strip)
            for (std::int64_t b = 0; b < made.blocks; ++b) {
                const auto put_numbers = [&](const Operand& operand) {
                    for (std::int64_t j = 0; j < lanes; ++j) {
                        const std::int64_t column = strip * lanes + j;
                        const float number = column < columns ? number_at(operand, column, b) : 0;
                        std::memcpy(to++, &number, sizeof number);
                    }
                };
                put_numbers(scales);
                if (made.has_points) put_numbers(points);
                const std::int64_t length = std::min(made.block, depth - b * made.block);
                for (std::int64_t w = 0; w < made.words; ++w)
                    for (std::int64_t j = 0; j < lanes; ++j) {
                        const std::int64_t column = strip * lanes + j;
                        std::uint32_t word = 0;
                        for (int i = 0; i < codes_per_word; ++i) {
                            const std::int64_t k = w * codes_per_word + position_of(i, bits);
                            if (column < columns && k < length)
                                word |= (code_at(codes, column, b * made.block + k, bits, packed_axis) ^ flip) << (i * bits);
                        }
                        *to++ = word;
                    }
            }
        return packed;
    });
    return made;
}

}  // namespace dovetail
