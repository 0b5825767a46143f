// Write combining: batches of bytes are assembled in L1 and stored non-temporally in whole cache lines.
#pragma once

#include "copy/copy_kernels.h"
#include "copy/simd/byte_shuffles.h"

namespace dovetail::DOVETAIL_ISA {

// Batches of bytes for consecutive addresses from `dst` on, at any alignment. The lines of one batch are stored while the next
// one is assembled. Reads and writes thus overlap, and recently stored bytes are not read again too soon. A line that two batches
// share begins in one buffer and ends in the other.
class WriteCombiner {
public:
    static constexpr std::int64_t kMaxBytes = kMatrixBytes;

    // `src` is the address from which the batches are read. The buffer lies half a page from `src`: a load waits for every
    // earlier store with the same offset in its page (4K aliasing).
    WriteCombiner(std::byte* dst, const std::byte* src)
        : buffers_(memory_ +
                   (reinterpret_cast<std::uintptr_t>(src) + 2048 - reinterpret_cast<std::uintptr_t>(memory_)) % 4096 / 64 * 64),
          partial_bytes_(static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(dst) % 64)), foreign_bytes_(partial_bytes_),
          line_(dst - partial_bytes_) {}

    // Begins a batch and returns its address. `next`, unless null, is the source of the batch after it: one line is prefetched
    // for each line stored.
    std::byte* begin_batch(const std::byte* next = nullptr) {
        batch_ ^= 1;
        prefetch_ = next;
        std::memcpy(buffer(), partial_line_, static_cast<std::size_t>(partial_bytes_));
        return buffer() + partial_bytes_;
    }

    // Streams `bytes` bytes of the previous batch: as many bytes as were just assembled for the current batch.
    inline __attribute__((always_inline)) void stream_as_many(std::int64_t bytes) {
        credit_ += bytes;
        stream_lines(credit_ / 64);
        credit_ %= 64;
    }

    // Ends the batch, of `bytes` bytes.
    void end_batch(std::int64_t bytes) {
        stream_lines(pending_lines_);
        const std::byte* const buffer = this->buffer();
        const std::int64_t total = partial_bytes_ + bytes;
        std::int64_t skipped = 0;
        if (foreign_bytes_ > 0 && total >= 64) {
            std::memcpy(line_ + foreign_bytes_, buffer + foreign_bytes_, static_cast<std::size_t>(64 - foreign_bytes_));
            foreign_bytes_ = 0;
            skipped = 1;
        }
        pending_to_ = line_ + skipped * 64;
        pending_from_ = buffer + skipped * 64;
        pending_lines_ = total / 64 - skipped;
        line_ += total / 64 * 64;
        partial_line_ = buffer + total / 64 * 64;
        partial_bytes_ = total % 64;
    }

    // Stores all remaining bytes; no batch may follow.
    void flush() {
        stream_lines(pending_lines_);
        if (partial_bytes_ > foreign_bytes_)
            std::memcpy(line_ + foreign_bytes_, partial_line_ + foreign_bytes_,
                        static_cast<std::size_t>(partial_bytes_ - foreign_bytes_));
    }

private:
    inline __attribute__((always_inline)) void stream_lines(std::int64_t lines) {
        if (lines > pending_lines_) lines = pending_lines_;
        pending_lines_ -= lines;
        for (; lines > 0; --lines, pending_to_ += 64, pending_from_ += 64) {
            if (prefetch_ != nullptr) {
                __builtin_prefetch(prefetch_);
                prefetch_ += 64;
            }
            for (int i = 0; i < 64; i += static_cast<int>(kVector))
                store_vector<kVector, true>(pending_to_ + i, load<kVector>(pending_from_ + i));
        }
    }

    static constexpr std::int64_t kBufferBytes = kMaxBytes + 4096;

    std::byte* buffer() { return buffers_ + batch_ * kBufferBytes; }

    std::byte* buffers_;
    // Bytes in the incomplete line, and the number of leading bytes of that line that belong to other data.
    std::int64_t partial_bytes_, foreign_bytes_;
    std::byte* line_;
    // The complete lines not yet stored.
    std::byte* pending_to_ = nullptr;
    const std::byte* pending_from_ = nullptr;
    const std::byte* prefetch_ = nullptr;
    std::int64_t pending_lines_ = 0, credit_ = 0;
    int batch_ = 0;
    alignas(64) std::byte memory_[2 * kBufferBytes + 4096];
    const std::byte* partial_line_ = memory_;
};

}  // namespace dovetail::DOVETAIL_ISA
