// What is put together in the first cache and goes past it in whole lines.
#pragma once

#include "copy/copy_kernels.h"
#include "copy/simd/byte_shuffles.h"

namespace dovetail::DOVETAIL_ISA {

// Batches of bytes that follow each other from `dst` on, wherever it begins. The lines of one batch are sent while the next one is put
// together: reading and writing go on at once, and what was only just stored is not read again too soon. A line that two batches share
// is begun in the one's room and ended in the other's.
class Batches {
public:
    static constexpr std::int64_t kMostBytes = kMatrixBytes;

    // `src` is what is read meanwhile: a room lies half a page from it, since a load waits for every store before it that has the same
    // place in its page.
    Batches(std::byte* dst, const std::byte* src)
        : first_(memory_ + (reinterpret_cast<std::uintptr_t>(src) + 2048 - reinterpret_cast<std::uintptr_t>(memory_)) % 4096 / 64 * 64), held_(static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(dst) % 64)), missing_(held_), line_(dst - held_) {}

    // Where the next batch is put together. `coming`, if any, is read after that: it is fetched meanwhile, a line for each that is sent.
    std::byte* open(const std::byte* coming = nullptr) {
        batch_ ^= 1;
        coming_ = coming;
        std::memcpy(room(), last_, static_cast<std::size_t>(held_));
        return room() + held_;
    }

    // As many bytes as were put together meanwhile.
    inline __attribute__((always_inline)) void send_as_many(std::int64_t bytes) {
        owed_ += bytes;
        send(owed_ / 64);
        owed_ %= 64;
    }

    // The open batch is whole.
    void close(std::int64_t bytes) {
        send(left_);
        const std::byte* const room = this->room();
        const std::int64_t made = held_ + bytes;
        std::int64_t begun = 0;
        if (missing_ > 0 && made >= 64) {
            std::memcpy(line_ + missing_, room + missing_, static_cast<std::size_t>(64 - missing_));
            missing_ = 0;
            begun = 1;
        }
        to_ = line_ + begun * 64;
        from_ = room + begun * 64;
        left_ = made / 64 - begun;
        line_ += made / 64 * 64;
        last_ = room + made / 64 * 64;
        held_ = made % 64;
    }

    // There are no more.
    void end() {
        send(left_);
        if (held_ > missing_) std::memcpy(line_ + missing_, last_ + missing_, static_cast<std::size_t>(held_ - missing_));
    }

private:
    inline __attribute__((always_inline)) void send(std::int64_t lines) {
        if (lines > left_) lines = left_;
        left_ -= lines;
        for (; lines > 0; --lines, to_ += 64, from_ += 64) {
            if (coming_ != nullptr) {
                __builtin_prefetch(coming_);
                coming_ += 64;
            }
            for (int i = 0; i < 64; i += static_cast<int>(kVector)) put_vector<kVector, true>(to_ + i, load<kVector>(from_ + i));
        }
    }

    static constexpr std::int64_t kRoom = kMostBytes + 4096;

    std::byte* room() { return first_ + batch_ * kRoom; }

    std::byte* first_;
    // Of the line that is not whole: how many of its bytes are there, and how many in front are not ours.
    std::int64_t held_, missing_;
    std::byte* line_;
    // The lines that are due.
    std::byte* to_ = nullptr;
    const std::byte* from_ = nullptr;
    const std::byte* coming_ = nullptr;
    std::int64_t left_ = 0, owed_ = 0;
    int batch_ = 0;
    alignas(64) std::byte memory_[2 * kRoom + 4096];
    const std::byte* last_ = memory_;
};

}  // namespace dovetail::DOVETAIL_ISA
