#include "kernels/conv.h"

#include <algorithm>
#include <stdexcept>

#include "kernels/kernels.h"

namespace dovetail {

namespace {

constexpr std::int64_t kTileFloats = kMostRows * kMostVectors * 16;
constexpr std::int64_t kChunkBytes = 512 << 10;  // of weights that stay in the second level of cache
constexpr std::int64_t kBoxFloats = 48 << 10;
constexpr std::int64_t kTasksPerThread = 6;
constexpr std::int64_t kAlone = std::int64_t{1} << 29;  // multiplications of one task of one thread
// Below so many multiplications of each element it costs too much to say where the pixels of a tile lie; and a cut has to be so much
// cheaper to be worth it.
constexpr std::int64_t kLeastDepth = 64;
constexpr double kAcross = 0.95;
constexpr std::int64_t kSmallWork = 1 << 17;  // multiplications that are not worth waking a thread for

std::int64_t whole(std::int64_t value, std::int64_t unit) { return (value + unit - 1) / unit; }

std::int64_t up_to_line(std::int64_t floats) { return whole(floats, 16) * 16; }

std::vector<float> padded(std::vector<float> values, std::int64_t most) {
    values.resize(values.size() + static_cast<std::size_t>(most));
    return values;
}

std::vector<float> narrowed(const std::vector<double>& values) { return {values.begin(), values.end()}; }

}  // namespace

Conv::Conv(const Spec& spec, Store& store)
    : x_(spec.inputs.at(0)),
      y_(spec.outputs.at(0)),
      finish_(spec),
      geometry_(spec, finish_),
      table_(product_table()),
      stages_(stage_table()) {
    const Operand& w = spec.inputs.at(1);
    if (!w.is_constant()) throw std::invalid_argument("conv: the weights are no constant");
    if (w.sizes[0] != geometry_.outputs * geometry_.groups || w.sizes[1] != geometry_.channels)
        throw std::invalid_argument("conv: the weights have other channels than the operands");
    take_channels();
    has_prologue_ = spec.has("prologue_scale");
    scale_ = narrowed(spec.reals("prologue_scale"));
    shift_ = narrowed(spec.reals("prologue_shift"));
    clamp_ = spec.integer("prologue_relu") != 0;
    const auto channels = static_cast<std::size_t>(has_prologue_ ? x_.sizes[1] : 0);
    if (scale_.size() != channels || shift_.size() != channels) throw std::invalid_argument("conv: a prologue of other channels");
    if (spec.integer("has_bias") != 0) {
        bias_ = padded(floats_of(spec.inputs.at(2)), kMostVectors * 16);
        if (bias_.size() != static_cast<std::size_t>(y_.sizes[1] + kMostVectors * 16))
            throw std::invalid_argument("conv: another bias");
    }
    if (y_.count() == 0) return;
    choose_reading();
    choose_sizes();
    pack_weights(spec, store);
}

// Groups of one channel and one output are multiplied all together, each channel by weights of its own.
void Conv::take_channels() {
    by_channel_ = geometry_.groups > 1 && geometry_.channels == 1 && geometry_.outputs == 1;
    if (!by_channel_) return;
    geometry_.channels = geometry_.outputs = geometry_.groups;
    geometry_.groups = 1;
}

void Conv::choose_reading() {
    const bool side_by_side = x_.sizes[1] == 1 || geometry_.x.channel == 1;
    const bool joined = geometry_.dilation[2] == 1 && geometry_.kernel[2] > 1 && !by_channel_;
    if (side_by_side && !has_prologue_)
        reading_ = joined && geometry_.channels < 8 ? Reading::rows : Reading::in_place;
    else if (geometry_.is_pointwise())
        reading_ = Reading::pixels;
    else
        reading_ = Reading::rows;
}

// Whether each row of the results goes on where the one before it ends.
bool Conv::is_even() const {
    const Geometry& g = geometry_;
    const auto is_even = [&g](const Layout& layout) { return layout.at[1] == layout.at[2] * g.out[2]; };
    return g.out[1] > 1 && is_even(g.y) && (!finish_.has_residual || is_even(g.residual));
}

// Short rows leave tiles half empty: where it pays they are cut as one.
void Conv::choose_cut() {
    const Geometry& g = geometry_;
    const std::int64_t step = reading_ == Reading::in_place ? g.x.at[2] * g.stride[2] : 0, depth = g.taps() * g.channels;
    cut_ = cut_of(g.out[2], g.outputs, step, depth, table_);
    if (reading_ != Reading::in_place || by_channel_ || depth < kLeastDepth || !is_even()) return;
    const Cut cut = cut_of(g.out[1] * g.out[2], g.outputs, step, depth, table_);
    across_ = cut.cost < kAcross * cut_.cost * static_cast<double>(g.out[1]);
    if (across_) cut_ = cut;
}

void Conv::choose_sizes() {
    const Geometry& g = geometry_;
    choose_cut();
    panels_ = panels_of(g.outputs, cut_.vectors, table_.lanes);
    if (by_channel_) {
        cut_.tiles = whole(g.out[2], kMostPixels);
        panels_ = {{0, g.outputs, static_cast<int>(whole(g.outputs, table_.lanes))}};
        in_threes_ = g.kernel[2] == 3 && g.stride[2] == g.dilation[2];
    }
    tile_floats_ = std::max<std::int64_t>(kTileFloats, by_channel_ ? kMostPixels * panels_[0].vectors * table_.lanes : 0);
    const bool runs = reading_ == Reading::rows && g.dilation[2] == 1 && !by_channel_;
    segments_ = runs ? g.kernel[0] * g.kernel[1] : g.taps();
    length_ = by_channel_ ? 1 : g.taps() * g.channels / segments_;
    chunk_panels_ = std::max<std::int64_t>(kChunkBytes / (segments_ * length_ * cut_.vectors * table_.lanes * 4), 1);
    // With steps of 1 only the last tap of the last row reads anything that is new.
    const bool is_large = x_.count() * 4 > kSecondCache && g.stride == Three{1, 1, 1};
    asks_ = reading_ == Reading::in_place && !by_channel_ && (g.taps() == 1 || is_large);
    zeros_.assign(static_cast<std::size_t>(by_channel_ ? g.channels : length_), 0.0f);

    // Rows of pixels that would lie a power of two apart fall on each other in the cache.
    pitch_ = reading_ == Reading::pixels ? up_to_line(g.channels) + 16 : g.channels;
    box_pixels_ = (g.out[2] - 1) * g.stride[2] + (g.kernel[2] - 1) * g.dilation[2] + 1;
    const auto rows_of = [&](std::int64_t lines) { return (lines - 1) * g.stride[1] + (g.kernel[1] - 1) * g.dilation[1] + 1; };
    const std::int64_t most = std::max<std::int64_t>(g.lines() / 8, 1);
    block_lines_ = 1;
    while (block_lines_ < std::min(g.out[1], most) &&
           g.kernel[0] * rows_of(block_lines_ + 1) * box_pixels_ * g.channels <= kBoxFloats)
        ++block_lines_;
    box_rows_ = rows_of(block_lines_);
    small_count_ = line_pixels() / cut_.tiles;
    large_tiles_ = line_pixels() % cut_.tiles;
    small_ = table_of(small_count_);
    large_ = table_of(small_count_ + 1);
    common_.length = length_;
    common_.scale = 1;
    finish_.set(common_);
}

// Where weights lie for the positions of all segments in turn.
std::vector<std::int64_t> Conv::order_of(const std::vector<std::int64_t>& strides) const {
    const Geometry& g = geometry_;
    const std::size_t rank = strides.size();
    const auto step = [&](std::size_t axis) { return axis + rank >= 5 ? strides[axis + rank - 3] : 0; };
    std::vector<std::int64_t> order;
    for (std::int64_t d = 0; d < g.kernel[0]; ++d)
        for (std::int64_t h = 0; h < g.kernel[1]; ++h) {
            const std::int64_t at = d * step(0) + h * step(1);
            if (by_channel_) {
                for (std::int64_t w = 0; w < g.kernel[2]; ++w) order.push_back(at + w * step(2));
            } else {
                for (std::int64_t w = 0; w < g.kernel[2]; ++w)
                    for (std::int64_t c = 0; c < g.channels; ++c) order.push_back(at + c * strides[1] + w * step(2));
            }
        }
    return order;
}

void Conv::pack_weights(const Spec& spec, Store& store) {
    const auto strides = float_strides(spec, spec.inputs.at(1));
    const auto* from = reinterpret_cast<const float*>(spec.inputs.at(1).constant);
    const auto order = order_of(strides);
    // Bytes from one group's weights to the next one's, where they do not follow on each other.
    const std::int64_t apart = spec.integer("group_step", (by_channel_ ? 1 : geometry_.outputs) * strides[0] * 4) / 4;
    const std::int64_t column = by_channel_ ? apart : strides[0];
    // One number per output channel.
    const bool scaled = spec.integer("has_factor") != 0;
    const auto factor = scaled ? floats_of(spec.inputs.at(3)) : std::vector<float>();
    if (scaled && factor.size() != static_cast<std::size_t>(y_.sizes[1])) throw std::invalid_argument("conv: another factor");
    for (std::int64_t group = 0; group < geometry_.groups; ++group) {
        const float* of_group = scaled ? factor.data() + group * geometry_.outputs : nullptr;
        weights_.push_back(pack_once(store, "conv", {from + group * apart, order, column, of_group}, panels_, table_.lanes));
    }
}

// What `count` neighbouring pixels of a line read, from where the first tap of the first one lies.
std::vector<std::int64_t> Conv::table_of(std::int64_t count) const {
    const Geometry& g = geometry_;
    Three at = g.x.at;
    if (reading_ == Reading::pixels) at[2] = pitch_;
    if (is_boxed()) at = {box_rows_ * box_pixels_ * g.channels, box_pixels_ * g.channels, g.channels};
    const std::int64_t inner = segments_ / (g.kernel[0] * g.kernel[1]);
    const std::int64_t step = (reading_ == Reading::pixels ? 1 : g.stride[2]) * at[2];
    std::vector<std::int64_t> table;
    for (std::int64_t d = 0; d < g.kernel[0]; ++d)
        for (std::int64_t h = 0; h < g.kernel[1]; ++h)
            for (std::int64_t i = 0; i < inner; ++i)
                for (std::int64_t r = 0; r < count; ++r)
                    table.push_back(d * (is_boxed() ? 1 : g.dilation[0]) * at[0] + h * g.dilation[1] * at[1] +
                                    i * g.dilation[2] * at[2] + r * step);
    return table;
}

std::int64_t Conv::units() const {
    if (!is_boxed()) return geometry_.lines() / (across_ ? geometry_.out[1] : 1) * cut_.tiles;
    return geometry_.images * geometry_.out[0] * whole(geometry_.out[1], block_lines_);
}

std::size_t Conv::scratch_bytes() const {
    const std::int64_t box = is_boxed()                    ? geometry_.kernel[0] * box_rows_ * box_pixels_ * geometry_.channels
                             : reading_ == Reading::pixels ? kMostRows * pitch_
                                                           : 0;
    return static_cast<std::size_t>(up_to_line(segments_ * kMostRows * 2) + up_to_line(box) + 2 * tile_floats_) * sizeof(float);
}

Conv::Room Conv::room_of(const Run& run, int worker) const {
    auto* at = reinterpret_cast<float*>(run.scratch_of(worker));
    auto* tiles = at + up_to_line(segments_ * kMostRows * 2);
    return {reinterpret_cast<std::int64_t*>(at), tiles + 2 * tile_floats_, tiles, tiles + tile_floats_, 0};
}

std::string Conv::name() const {
    static const char* const ways[] = {"in place", "pixels", "rows"};
    return std::string("conv ") + ways[static_cast<int>(reading_)] + " " + name_of(isa());
}

void Conv::run(const Run& run) const {
    if (y_.count() == 0) return;
    const auto panels = static_cast<std::int64_t>(panels_.size());
    const std::int64_t chunks = whole(panels, chunk_panels_), all = units(), threads = run.pool->threads();
    const bool small = y_.count() * segments_ * length_ < kSmallWork;
    // Groups of few channels share cache lines of the result: one thread makes all of them for its pixels.
    const std::int64_t together = chunks == 1 && threads > 1 && all >= kTasksPerThread * threads ? geometry_.groups : 1;
    const std::int64_t apart = geometry_.groups / together;
    const std::int64_t work_alone = y_.count() / geometry_.groups * segments_ * length_ / chunks;
    const std::int64_t wanted = small           ? 1
                                : threads == 1 ? run.pool->parts(all, work_alone, kAlone)
                                               : whole(kTasksPerThread * threads, chunks * apart);
    const std::int64_t parts = std::min(all, wanted);
    const auto of_group = [&](std::int64_t index, std::int64_t group, int worker) {
        const std::int64_t part = index % parts, chunk = index / parts % chunks;
        Task share{group,
                   static_cast<std::size_t>(chunk * panels / chunks),
                   static_cast<std::size_t>((chunk + 1) * panels / chunks),
                   part * all / parts,
                   (part + 1) * all / parts,
                   {}};
        // The chunk that this thread will come to if each takes its turn.
        const std::int64_t next = chunk + (parts == 1 ? threads : 1);
        if (next < chunks) share.ahead = ahead_of(share, next, chunks);
        work(run, share, worker);
    };
    const auto task = [&](std::int64_t index, int worker) {
        const std::int64_t first = index / parts / chunks * together;
        for (std::int64_t group = first; group < first + together; ++group) of_group(index, group, worker);
    };
    const std::int64_t tasks = parts * chunks * apart;
    if (small)
        for (std::int64_t i = 0; i < tasks; ++i) task(i, 0);
    else
        run.pool->each(tasks, task);
}

Ahead Conv::ahead_of(const Task& task, std::int64_t chunk, std::int64_t chunks) const {
    const auto panels = static_cast<std::int64_t>(panels_.size()), depth = segments_ * length_;
    const auto begin = [&](std::int64_t each) {
        const std::int64_t panel = each * panels / chunks;
        return panel < panels ? panels_[static_cast<std::size_t>(panel)].first
                              : whole(geometry_.outputs, table_.lanes) * table_.lanes;
    };
    const std::int64_t tiles = (task.last_unit - task.first_unit) * (is_boxed() ? block_lines_ * cut_.tiles : 1);
    return {weights_[static_cast<std::size_t>(task.group)].get() + begin(chunk) * depth,
            (begin(chunk + 1) - begin(chunk)) * depth, tiles};
}

void Conv::work(const Run& run, const Task& task, int worker) const {
    Room room = room_of(run, worker);
    if (is_boxed())
        for (std::int64_t unit = task.first_unit; unit < task.last_unit; ++unit) block(run, task, room, unit);
    else
        lines(run, task, room);
}

// Divisions are made once for a line: a tile of few channels takes no longer than some of them.
void Conv::lines(const Run& run, const Task& task, Room& room) const {
    std::int64_t line = task.first_unit / cut_.tiles, tile = task.first_unit % cut_.tiles;
    for (std::int64_t left = task.last_unit - task.first_unit; left > 0; ++line, tile = 0) {
        const Line at = line_of(geometry_, across_ ? line * geometry_.out[1] : line);
        for (; left > 0 && tile < cut_.tiles; ++tile, --left) {
            const std::int64_t first = tile_begin(tile), count = tile_begin(tile + 1) - first;
            if (reading_ == Reading::pixels)
                tile_of_pixels(run, task, room, at, first, count);
            else if (across_)
                tile_across(run, task, room, at, first, count);
            else
                tile_in_place(run, task, room, at, first, count);
        }
    }
}

namespace {

float* at(float* base, const Layout& layout, const Line& line, std::int64_t pixel, std::int64_t channel) {
    return base + line.image * layout.image + channel * layout.channel + line.depth * layout.at[0] + line.row * layout.at[1] +
           pixel * layout.at[2];
}

}  // namespace

void Conv::multiply(const Run& run, const Task& task, Room& room, const Place& place) const {
    const Geometry& g = geometry_;
    const Line& line = place.line;
    const bool apart = g.y.channel != 1 && y_.sizes[1] != 1;
    const bool residual_apart = finish_.has_residual && g.residual.channel != 1 && y_.sizes[1] != 1;
    auto* y = reinterpret_cast<float*>(run.at(y_));
    auto* residual = finish_.has_residual ? reinterpret_cast<float*>(run.at(finish_.residual)) : nullptr;
    ProductTile tile = common_;
    tile.base = place.base;
    tile.rows = place.rows;
    tile.segments = place.segments;
    tile.ahead = place.ahead;
    const std::int64_t index = room.tiles++;
    const auto& by_channel = in_threes_ ? table_.by_channel_in_threes : table_.by_channel;
    for (std::size_t p = task.first_panel; p < task.last_panel; ++p) {
        const Panel& panel = panels_[p];
        const std::int64_t channel = task.group * g.outputs + panel.first,
                           width = static_cast<std::int64_t>(panel.vectors) * table_.lanes;
        float* to = at(y, g.y, line, place.first, channel);
        tile.weights = weights_[static_cast<std::size_t>(task.group)].get() + panel.first * segments_ * length_ +
                       place.first_segment * length_ * width;
        tile.weights_stride = width;
        task.ahead.set(tile, index, static_cast<std::int64_t>(p - task.first_panel),
                       static_cast<std::int64_t>(task.last_panel - task.first_panel));
        tile.columns = panel.columns;
        tile.bias = bias_.empty() ? nullptr : bias_.data() + channel;
        tile.y = apart ? room.y : to;
        tile.y_stride = apart ? width : g.y.at[2];
        if (residual != nullptr) {
            const float* from = at(residual, g.residual, line, place.first, channel);
            tile.residual = residual_apart ? room.residual : from;
            tile.residual_stride = residual_apart ? width : g.residual.at[2];
            for (std::int64_t r = 0; residual_apart && r < place.count; ++r)
                for (std::int64_t j = 0; j < panel.columns; ++j)
                    room.residual[r * width + j] = from[r * g.residual.at[2] + j * g.residual.channel];
        }
        (by_channel_ ? by_channel[place.count - 1] : table_.of[panel.vectors - 1][place.count - 1])(tile);
        for (std::int64_t j = 0; apart && j < panel.columns; ++j)
            for (std::int64_t r = 0; r < place.count; ++r) to[r * g.y.at[2] + j * g.y.channel] = room.y[r * width + j];
    }
}

std::unique_ptr<Step> make_conv(const Spec& spec, Store& store) { return std::make_unique<Conv>(spec, store); }

}  // namespace dovetail
