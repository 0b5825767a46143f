#include "kernels/conv.h"

#include <algorithm>
#include <stdexcept>

#include "kernels/folded_conv.h"
#include "kernels/kernels.h"
#include "kernels/winograd.h"

namespace dovetail {

namespace {

constexpr std::int64_t kTileFloats = kMaxRows * kMaxVectors * 16;
constexpr std::int64_t kChunkBytes = 512 << 10;  // bytes of the weights of one task, which stay in L2
constexpr std::int64_t kPatchFloats = 48 << 10;
constexpr std::int64_t kTasksPerThread = 6;
constexpr std::int64_t kSingleThreadTaskWork = std::int64_t{1} << 29;  // multiplications of one task with a single thread
// The number of products per output element below which computing the input offsets of each tile costs too much.
constexpr std::int64_t kMinDepth = 64;
// Tiles that span rows are used if their estimated cost is below this share of the cost of tiles within rows.
constexpr double kSpanningCost = 0.95;

std::int64_t round_to_line(std::int64_t floats) { return ceil_div(floats, 16) * 16; }

std::vector<float> with_padding(std::vector<float> values, std::int64_t padding) {
    values.resize(values.size() + static_cast<std::size_t>(padding));
    return values;
}

std::vector<float> to_floats(const std::vector<double>& values) { return {values.begin(), values.end()}; }

}  // namespace

Conv::Conv(const Spec& spec, WeightCache& cache)
    : x_(spec.inputs.at(0)), y_(spec.outputs.at(0)), epilogue_(spec), geometry_(spec, epilogue_), kernels_(&gemm_kernels()),
      prologue_(&prologue_kernels()) {
    const Operand& w = spec.inputs.at(1);
    if (w.element != Element::f32) throw std::invalid_argument("conv: the weights must be f32");
    if (w.count() == 0 && y_.count() != 0) throw std::invalid_argument("conv: the weights must have elements");
    if (w.sizes[0] != geometry_.outputs * geometry_.groups || w.sizes[1] != geometry_.channels)
        throw std::invalid_argument("conv: the channels of weights and operands disagree");
    merge_depthwise_groups();
    is_bf16_ = spec.text("precision", "f32") == "bf16" && !is_depthwise_;
    words_ = is_bf16_ ? ceil_div(geometry_.channels, 2) : geometry_.channels;
    if (is_bf16_) {
        kernels_ = &bf16_kernels().gemm;
        prologue_ = &bf16_kernels().prologue;
    }
    has_prologue_ = spec.has("prologue_scale");
    scale_ = to_floats(spec.reals("prologue_scale"));
    shift_ = to_floats(spec.reals("prologue_shift"));
    prologue_relu_ = spec.integer("prologue_relu") != 0;
    const auto channels = static_cast<std::size_t>(has_prologue_ ? x_.sizes[1] : 0);
    if (scale_.size() != channels || shift_.size() != channels)
        throw std::invalid_argument("conv: the prologue must have one value for each input channel");
    has_bias_ = spec.integer("has_bias") != 0;
    is_packed_in_runs_ = !w.is_constant() || (has_bias_ && !spec.inputs.at(2).is_constant());
    w_ = w;
    if (has_bias_ && is_packed_in_runs_) {
        bias_operand_ = spec.inputs.at(2);
        if (bias_operand_.element != Element::f32 || bias_operand_.count() != y_.sizes[1] || bias_operand_.rank() != 1)
            throw std::invalid_argument("conv: the bias must have one value for each output channel");
    } else if (has_bias_) {
        bias_ = with_padding(floats_of(spec.inputs.at(2)), kMaxVectors * 16);
        if (bias_.size() != static_cast<std::size_t>(y_.sizes[1] + kMaxVectors * 16))
            throw std::invalid_argument("conv: the bias must have one value for each output channel");
    }
    if (y_.count() == 0) return;
    choose_input_mode();
    choose_sizes();
    pack_weights(spec, cache);
}

// Merges the groups of a depthwise convolution: all channels are multiplied together, each channel by its own weights.
void Conv::merge_depthwise_groups() {
    is_depthwise_ = geometry_.groups > 1 && geometry_.channels == 1 && geometry_.outputs == 1;
    if (!is_depthwise_) return;
    geometry_.channels = geometry_.outputs = geometry_.groups;
    geometry_.groups = 1;
}

void Conv::choose_input_mode() {
    const bool is_channels_last = x_.sizes[1] == 1 || geometry_.x.channel == 1;
    const bool merges_taps = geometry_.dilation[2] == 1 && geometry_.kernel[2] > 1 && !is_depthwise_;
    if (is_channels_last && !has_prologue_ && !is_bf16_)
        input_mode_ = merges_taps && geometry_.channels < 8 ? InputMode::rows : InputMode::in_place;
    else if (geometry_.is_pointwise())
        input_mode_ = InputMode::pixels;
    else
        input_mode_ = InputMode::rows;
}

// True if each row of the output begins where the previous row ends.
bool Conv::has_contiguous_rows() const {
    const ConvGeometry& g = geometry_;
    const auto has_contiguous_rows = [&g](const TensorStrides& layout) {
        return layout.spatial[1] == layout.spatial[2] * g.out[2];
    };
    return g.out[1] > 1 && has_contiguous_rows(g.y) && (!epilogue_.has_residual || has_contiguous_rows(g.residual));
}

// Tiles within short rows stay half empty. If it costs less, all rows of a plane are tiled as one line.
void Conv::choose_tiling() {
    const ConvGeometry& g = geometry_;
    const std::int64_t step = input_mode_ == InputMode::in_place ? g.x.spatial[2] * g.stride[2] : 0, depth = g.taps() * words_;
    tiling_ = tiling_of(g.out[2], g.outputs, step, depth, *kernels_);
    if (input_mode_ != InputMode::in_place || is_depthwise_ || depth < kMinDepth || !has_contiguous_rows()) return;
    const Tiling across_rows = tiling_of(g.out[1] * g.out[2], g.outputs, step, depth, *kernels_);
    spans_rows_ = across_rows.cost < kSpanningCost * tiling_.cost * static_cast<double>(g.out[1]);
    if (spans_rows_) tiling_ = across_rows;
}

void Conv::choose_sizes() {
    const ConvGeometry& g = geometry_;
    choose_tiling();
    panels_ = panels_of(g.outputs, tiling_.vectors, kernels_->lanes);
    if (is_depthwise_) {
        tiling_.tiles = ceil_div(g.out[2], kMaxPixels);
        panels_ = {{0, g.outputs, static_cast<int>(ceil_div(g.outputs, kernels_->lanes))}};
        in_triples_ = g.kernel[2] == 3 && g.stride[2] == g.dilation[2];
    }
    tile_floats_ = std::max<std::int64_t>(kTileFloats, is_depthwise_ ? kMaxPixels * panels_[0].vectors * kernels_->lanes : 0);
    const bool runs = input_mode_ == InputMode::rows && g.dilation[2] == 1 && !is_depthwise_;
    segments_ = runs ? g.kernel[0] * g.kernel[1] : g.taps();
    length_ = is_depthwise_ ? 1 : g.taps() * words_ / segments_;
    chunk_panels_ = std::max<std::int64_t>(kChunkBytes / (segments_ * length_ * tiling_.vectors * kernels_->lanes * 4), 1);
    // With strides of 1, only the last tap of the last row reads input that no earlier tap has read.
    const bool is_large = x_.count() * 4 > kL2Bytes && g.stride == Spatial{1, 1, 1};
    prefetches_input_ = input_mode_ == InputMode::in_place && !is_depthwise_ && (g.taps() == 1 || is_large);
    zeros_.assign(static_cast<std::size_t>(is_depthwise_ ? g.channels : length_), 0.0f);

    // One extra cache line per pixel avoids set conflicts between pixels that are a power of two apart.
    pitch_ = input_mode_ == InputMode::pixels ? round_to_line(words_) + 16 : words_;
    patch_pixels_ = (g.out[2] - 1) * g.stride[2] + (g.kernel[2] - 1) * g.dilation[2] + 1;
    const auto rows_of = [&](std::int64_t lines) { return (lines - 1) * g.stride[1] + (g.kernel[1] - 1) * g.dilation[1] + 1; };
    const std::int64_t max_lines = std::max<std::int64_t>(g.lines() / 8, 1);
    block_lines_ = 1;
    while (block_lines_ < std::min(g.out[1], max_lines) &&
           g.kernel[0] * rows_of(block_lines_ + 1) * patch_pixels_ * words_ <= kPatchFloats)
        ++block_lines_;
    patch_rows_ = rows_of(block_lines_);
    small_count_ = line_pixels() / tiling_.tiles;
    large_tiles_ = line_pixels() % tiling_.tiles;
    small_offsets_ = input_offsets(small_count_);
    large_offsets_ = input_offsets(small_count_ + 1);
    shared_fields_.length = length_;
    shared_fields_.scale = 1;
    epilogue_.apply_to(shared_fields_);
}

// Returns the source offset of the weight at each packed position, segment by segment.
std::vector<std::int64_t> Conv::source_offsets(const std::vector<std::int64_t>& strides) const {
    const ConvGeometry& g = geometry_;
    const std::size_t rank = strides.size();
    const auto step = [&](std::size_t axis) { return axis + rank >= 5 ? strides[axis + rank - 3] : 0; };
    std::vector<std::int64_t> order;
    for (std::int64_t d = 0; d < g.kernel[0]; ++d)
        for (std::int64_t h = 0; h < g.kernel[1]; ++h) {
            const std::int64_t at = d * step(0) + h * step(1);
            if (is_depthwise_) {
                for (std::int64_t w = 0; w < g.kernel[2]; ++w) order.push_back(at + w * step(2));
            } else {
                for (std::int64_t w = 0; w < g.kernel[2]; ++w) {
                    for (std::int64_t c = 0; c < g.channels; ++c) order.push_back(at + c * strides[1] + w * step(2));
                    if (is_bf16_ && g.channels % 2 != 0) order.push_back(Matrix::kZero);
                }
            }
        }
    return order;
}

void Conv::pack_weights(const Spec& spec, WeightCache& cache) {
    const auto strides = float_strides(spec, spec.inputs.at(1));
    const auto* from = reinterpret_cast<const float*>(spec.inputs.at(1).constant);
    const auto order = source_offsets(strides);
    // Distance, in floats, from the weights of one group to the weights of the next group.
    const std::int64_t apart = spec.integer("group_step", (is_depthwise_ ? 1 : geometry_.outputs) * strides[0] * 4) / 4;
    const std::int64_t column = is_depthwise_ ? apart : strides[0];
    // One factor per output channel.
    const bool scaled = spec.integer("has_factor") != 0;
    const auto factor = scaled ? floats_of(spec.inputs.at(3)) : std::vector<float>();
    if (scaled && factor.size() != static_cast<std::size_t>(y_.sizes[1]))
        throw std::invalid_argument("conv: the factor must have one value for each output channel");
    if (is_packed_in_runs_ && scaled) throw std::invalid_argument("conv: factors need constant weights");
    of_run_ = {{nullptr, order, column, nullptr, is_bf16_}, geometry_.groups, apart};
    group_floats_ = of_run_.packed_floats(panels_, kernels_->lanes);
    for (std::int64_t group = 0; !is_packed_in_runs_ && group < geometry_.groups; ++group) {
        const float* of_group = scaled ? factor.data() + group * geometry_.outputs : nullptr;
        weights_.push_back(
            pack_cached(cache, "conv", {from + group * apart, order, column, of_group, is_bf16_}, panels_, kernels_->lanes));
    }
}

// Packs the weights, and copies the bias, before the tasks of a run.
void Conv::pack_weights_of_run(const Run& run) const {
    auto* to = reinterpret_cast<float*>(run.shared_scratch);
    of_run_.pack(*run.pool, to, reinterpret_cast<const float*>(run.at(w_)), panels_, kernels_->lanes);
    if (!has_bias_) return;
    float* bias = to + geometry_.groups * group_floats_;
    const auto* from = reinterpret_cast<const float*>(run.at(bias_operand_));
    const std::int64_t step = bias_operand_.strides[0] / 4, channels = y_.sizes[1];
    for (std::int64_t j = 0; j < channels + kMaxVectors * 16; ++j) bias[j] = j < channels ? from[j * step] : 0;
}

// The input offsets of `count` adjacent pixels of a line, from the first tap of the first pixel.
std::vector<std::int64_t> Conv::input_offsets(std::int64_t count) const {
    const ConvGeometry& g = geometry_;
    Spatial at = g.x.spatial;
    if (input_mode_ == InputMode::pixels) at[2] = pitch_;
    if (copies_rows()) at = {patch_rows_ * patch_pixels_ * words_, patch_pixels_ * words_, words_};
    const std::int64_t inner = segments_ / (g.kernel[0] * g.kernel[1]);
    const std::int64_t step = (input_mode_ == InputMode::pixels ? 1 : g.stride[2]) * at[2];
    std::vector<std::int64_t> table;
    for (std::int64_t d = 0; d < g.kernel[0]; ++d)
        for (std::int64_t h = 0; h < g.kernel[1]; ++h)
            for (std::int64_t i = 0; i < inner; ++i)
                for (std::int64_t r = 0; r < count; ++r)
                    table.push_back(d * (copies_rows() ? 1 : g.dilation[0]) * at[0] + h * g.dilation[1] * at[1] +
                                    i * g.dilation[2] * at[2] + r * step);
    return table;
}

std::int64_t Conv::units() const {
    if (!copies_rows()) return geometry_.lines() / (spans_rows_ ? geometry_.out[1] : 1) * tiling_.tiles;
    return geometry_.images * geometry_.out[0] * ceil_div(geometry_.out[1], block_lines_);
}

std::size_t Conv::scratch_bytes() const {
    const std::int64_t patch = copies_rows()                      ? geometry_.kernel[0] * patch_rows_ * patch_pixels_ * words_
                               : input_mode_ == InputMode::pixels ? kMaxRows * pitch_
                                                                  : 0;
    return static_cast<std::size_t>(round_to_line(segments_ * kMaxRows * 2) + round_to_line(patch) + 2 * tile_floats_) *
           sizeof(float);
}

std::size_t Conv::shared_scratch_bytes() const {
    if (!is_packed_in_runs_ || y_.count() == 0) return 0;
    const std::int64_t bias = has_bias_ ? y_.sizes[1] + kMaxVectors * 16 : 0;
    return static_cast<std::size_t>(geometry_.groups * group_floats_ + bias) * sizeof(float);
}

Conv::Workspace Conv::workspace_of(const Run& run, int worker) const {
    auto* at = reinterpret_cast<float*>(run.scratch_of(worker));
    auto* tiles = at + round_to_line(segments_ * kMaxRows * 2);
    return {reinterpret_cast<std::int64_t*>(at), tiles + 2 * tile_floats_, tiles, tiles + tile_floats_, 0};
}

std::string Conv::name() const {
    static const char* const modes[] = {"in place", "pixels", "rows"};
    return std::string("conv ") + modes[static_cast<int>(input_mode_)] + (is_bf16_ ? " bf16 " : " ") + name_of(isa());
}

void Conv::run(const Run& run) const {
    if (y_.count() == 0) return;
    if (is_packed_in_runs_) pack_weights_of_run(run);
    const auto panels = static_cast<std::int64_t>(panels_.size());
    const std::int64_t chunks = ceil_div(panels, chunk_panels_), all = units(), threads = run.pool->threads();
    const bool is_small = y_.count() * segments_ * length_ < kSmallConvolution;
    // Groups of few channels share cache lines of the output: one thread computes all groups of its pixels.
    const std::int64_t groups_per_task = chunks == 1 && threads > 1 && all >= kTasksPerThread * threads ? geometry_.groups : 1;
    const std::int64_t apart = geometry_.groups / groups_per_task;
    const std::int64_t work_alone = y_.count() / geometry_.groups * segments_ * length_ / chunks;
    const std::int64_t target_parts = is_small       ? 1
                                      : threads == 1 ? run.pool->task_count(all, work_alone, kSingleThreadTaskWork)
                                                     : ceil_div(kTasksPerThread * threads, chunks * apart);
    const std::int64_t parts = std::min(all, target_parts);
    const auto of_group = [&](std::int64_t index, std::int64_t group, int worker) {
        const std::int64_t part = index % parts, chunk = index / parts % chunks;
        Task share{group,
                   static_cast<std::size_t>(chunk * panels / chunks),
                   static_cast<std::size_t>((chunk + 1) * panels / chunks),
                   part * all / parts,
                   (part + 1) * all / parts,
                   {}};
        // The chunk of this thread's next task, if the tasks are assigned to the threads in turn.
        const std::int64_t next = chunk + (parts == 1 ? threads : 1);
        if (next < chunks) share.prefetch = prefetch_of(run, share, next, chunks);
        run_task(run, share, worker);
    };
    const auto task = [&](std::int64_t index, int worker) {
        const std::int64_t first = index / parts / chunks * groups_per_task;
        for (std::int64_t group = first; group < first + groups_per_task; ++group) of_group(index, group, worker);
    };
    const std::int64_t tasks = parts * chunks * apart;
    if (is_small)
        for (std::int64_t i = 0; i < tasks; ++i) task(i, 0);
    else
        run.pool->parallel_for(tasks, task);
}

WeightPrefetch Conv::prefetch_of(const Run& run, const Task& task, std::int64_t chunk, std::int64_t chunks) const {
    const auto panels = static_cast<std::int64_t>(panels_.size()), depth = segments_ * length_;
    const auto begin = [&](std::int64_t index) {
        const std::int64_t panel = index * panels / chunks;
        return panel < panels ? panels_[static_cast<std::size_t>(panel)].first
                              : ceil_div(geometry_.outputs, kernels_->lanes) * kernels_->lanes;
    };
    const std::int64_t tiles = (task.last_unit - task.first_unit) * (copies_rows() ? block_lines_ * tiling_.tiles : 1);
    return {weights_of(run, task.group) + begin(chunk) * depth, (begin(chunk + 1) - begin(chunk)) * depth, tiles};
}

void Conv::run_task(const Run& run, const Task& task, int worker) const {
    Workspace workspace = workspace_of(run, worker);
    if (copies_rows())
        for (std::int64_t unit = task.first_unit; unit < task.last_unit; ++unit) multiply_block(run, task, workspace, unit);
    else
        multiply_lines(run, task, workspace);
}

// Positions are divided once per line, because a tile of few channels takes no longer than a few divisions.
void Conv::multiply_lines(const Run& run, const Task& task, Workspace& workspace) const {
    std::int64_t line = task.first_unit / tiling_.tiles, tile = task.first_unit % tiling_.tiles;
    for (std::int64_t remaining = task.last_unit - task.first_unit; remaining > 0; ++line, tile = 0) {
        const OutputLine at = line_of(geometry_, spans_rows_ ? line * geometry_.out[1] : line);
        for (; remaining > 0 && tile < tiling_.tiles; ++tile, --remaining) {
            const std::int64_t first = tile_begin(tile), count = tile_begin(tile + 1) - first;
            if (input_mode_ == InputMode::pixels)
                multiply_pixels(run, task, workspace, at, first, count);
            else if (spans_rows_)
                multiply_across_rows(run, task, workspace, at, first, count);
            else
                multiply_in_place(run, task, workspace, at, first, count);
        }
    }
}

namespace {

float* at(float* base, const TensorStrides& layout, const OutputLine& line, std::int64_t pixel, std::int64_t channel) {
    return base + line.image * layout.image + channel * layout.channel + line.depth * layout.spatial[0] +
           line.row * layout.spatial[1] + pixel * layout.spatial[2];
}

}  // namespace

void Conv::multiply(const Run& run, const Task& task, Workspace& workspace, const TilePosition& position) const {
    const ConvGeometry& g = geometry_;
    const OutputLine& line = position.line;
    const bool apart = g.y.channel != 1 && y_.sizes[1] != 1;
    const bool residual_apart = epilogue_.has_residual && g.residual.channel != 1 && y_.sizes[1] != 1;
    auto* y = reinterpret_cast<float*>(run.at(y_));
    auto* residual = epilogue_.has_residual ? reinterpret_cast<float*>(run.at(epilogue_.residual)) : nullptr;
    const float* bias = bias_of(run);
    GemmTile tile = shared_fields_;
    tile.base = position.base;
    tile.rows = position.rows;
    tile.segments = position.segments;
    tile.next_input = position.next_input;
    const std::int64_t index = workspace.tiles++;
    const auto& depthwise = in_triples_ ? kernels_->depthwise_triples : kernels_->depthwise;
    for (std::size_t p = task.first_panel; p < task.last_panel; ++p) {
        const Panel& panel = panels_[p];
        const std::int64_t channel = task.group * g.outputs + panel.first,
                           width = static_cast<std::int64_t>(panel.vectors) * kernels_->lanes;
        float* to = at(y, g.y, line, position.first, channel);
        tile.weights = weights_of(run, task.group) + panel.first * segments_ * length_ + position.first_segment * length_ * width;
        tile.weights_stride = width;
        task.prefetch.set(tile, index, static_cast<std::int64_t>(p - task.first_panel),
                          static_cast<std::int64_t>(task.last_panel - task.first_panel));
        tile.columns = panel.columns;
        tile.bias = bias == nullptr ? nullptr : bias + channel;
        tile.y = apart ? workspace.y : to;
        tile.y_stride = apart ? width : g.y.spatial[2];
        if (residual != nullptr) {
            const float* from = at(residual, g.residual, line, position.first, channel);
            tile.residual = residual_apart ? workspace.residual : from;
            tile.residual_stride = residual_apart ? width : g.residual.spatial[2];
            for (std::int64_t r = 0; residual_apart && r < position.count; ++r)
                for (std::int64_t j = 0; j < panel.columns; ++j)
                    workspace.residual[r * width + j] = from[r * g.residual.spatial[2] + j * g.residual.channel];
        }
        (is_depthwise_ ? depthwise[position.count - 1] : kernels_->tile[panel.vectors - 1][position.count - 1])(tile);
        for (std::int64_t j = 0; apart && j < panel.columns; ++j)
            for (std::int64_t r = 0; r < position.count; ++r)
                to[r * g.y.spatial[2] + j * g.y.channel] = workspace.y[r * width + j];
    }
}

std::unique_ptr<Kernel> make_conv(const Spec& spec, WeightCache& cache) {
    const Spec normalized = without_unit_axes(spec);
    const bool has_bias = spec.integer("has_bias") != 0;
    if (!has_bias || spec.inputs.at(2).is_constant()) {
        if (auto kernel = WinogradConv::create(normalized, cache)) return kernel;
        if (auto kernel = FoldedConv::create(normalized, cache)) return kernel;
    }
    return std::make_unique<Conv>(normalized, cache);
}

}  // namespace dovetail
