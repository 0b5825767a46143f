// Sizes, a sequence of integers that allocates nothing up to the rank of most tensors.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <vector>

namespace dovetail {

// One integer for each axis of a tensor. Has the functions of std::vector that kernels use.
class Sizes {
public:
    using value_type = std::int64_t;
    using iterator = std::int64_t*;
    using const_iterator = const std::int64_t*;

    Sizes() = default;
    explicit Sizes(std::size_t count, std::int64_t value = 0) { assign(count, value); }
    Sizes(std::initializer_list<std::int64_t> values) { assign(values.begin(), values.end()); }
    template <typename Iterator, typename = typename std::iterator_traits<Iterator>::iterator_category>
    Sizes(Iterator first, Iterator last) {
        assign(first, last);
    }
    Sizes(const std::vector<std::int64_t>& values) { assign(values.begin(), values.end()); }
    Sizes(const Sizes& other) { assign(other.begin(), other.end()); }
    Sizes(Sizes&& other) noexcept { take(other); }
    Sizes& operator=(const Sizes& other) {
        if (this != &other) assign(other.begin(), other.end());
        return *this;
    }
    Sizes& operator=(Sizes&& other) noexcept {
        if (this != &other) take(other);
        return *this;
    }
    ~Sizes() = default;

    operator std::vector<std::int64_t>() const { return {begin(), end()}; }

    std::size_t size() const { return size_; }
    bool empty() const { return size_ == 0; }
    std::int64_t* begin() { return data(); }
    std::int64_t* end() { return data() + size_; }
    const std::int64_t* begin() const { return data(); }
    const std::int64_t* end() const { return data() + size_; }
    std::int64_t* data() { return many_ ? many_.get() : few_; }
    const std::int64_t* data() const { return many_ ? many_.get() : few_; }
    std::int64_t& operator[](std::size_t index) { return data()[index]; }
    std::int64_t operator[](std::size_t index) const { return data()[index]; }
    std::int64_t& front() { return data()[0]; }
    std::int64_t front() const { return data()[0]; }
    std::int64_t& back() { return data()[size_ - 1]; }
    std::int64_t back() const { return data()[size_ - 1]; }

    void assign(std::size_t count, std::int64_t value) {
        resize(count);
        std::fill(begin(), end(), value);
    }
    template <typename Iterator, typename = typename std::iterator_traits<Iterator>::iterator_category>
    void assign(Iterator first, Iterator last) {
        resize(static_cast<std::size_t>(std::distance(first, last)));
        std::copy(first, last, begin());
    }
    // New elements are 0.
    void resize(std::size_t count) {
        if (count > capacity_) {
            std::unique_ptr<std::int64_t[]> many(new std::int64_t[2 * count]);
            std::copy(begin(), end(), many.get());
            many_ = std::move(many);
            capacity_ = 2 * count;
        }
        if (count > size_) std::fill(data() + size_, data() + count, 0);
        size_ = count;
    }
    void push_back(std::int64_t value) {
        resize(size_ + 1);
        back() = value;
    }
    void pop_back() { --size_; }
    void insert(const std::int64_t* position, std::int64_t value) {
        const auto index = position - begin();
        resize(size_ + 1);
        std::copy_backward(begin() + index, end() - 1, end());
        begin()[index] = value;
    }
    void erase(const std::int64_t* position) {
        const auto index = position - begin();
        std::copy(begin() + index + 1, end(), begin() + index);
        --size_;
    }

    friend bool operator==(const Sizes& a, const Sizes& b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }
    friend bool operator!=(const Sizes& a, const Sizes& b) { return !(a == b); }

private:
    static constexpr std::size_t kFew = 5;

    void take(Sizes& other) {
        many_ = std::move(other.many_);
        std::copy(other.few_, other.few_ + kFew, few_);
        size_ = other.size_;
        capacity_ = other.capacity_;
        other.size_ = 0;
        other.capacity_ = kFew;
    }

    std::size_t size_ = 0;
    std::size_t capacity_ = kFew;
    std::unique_ptr<std::int64_t[]> many_;  // the elements, if their number is or was above kFew
    std::int64_t few_[kFew] = {};
};

}  // namespace dovetail
