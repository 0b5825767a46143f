// The extension module dovetail._native: copy_window, and the bindings of program.cpp, arrays.cpp and fast_calls.cpp.
#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <stdexcept>

#include "copy/window_copy.h"
#include "python/gil.h"

namespace nb = nanobind;

namespace dovetail {
void bind_program(nb::module_& m);     // program.cpp
void bind_arrays(nb::module_& m);      // arrays.cpp
void bind_fast_calls(nb::module_& m);  // fast_calls.cpp
}  // namespace dovetail

namespace {

// Bytes below which releasing the interpreter lock costs more than the copy.
constexpr std::size_t kReleaseFromBytes = 64 * 1024;

// A contiguous Python buffer, released with this object.
class Buffer {
public:
    Buffer(nb::handle object, int flags) {
        if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) throw nb::python_error();
    }
    ~Buffer() { PyBuffer_Release(&view_); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

    std::byte* data() const { return static_cast<std::byte*>(view_.buf); }
    std::size_t bytes() const { return static_cast<std::size_t>(view_.len); }

private:
    Py_buffer view_{};
};

using Numbers = std::vector<std::int64_t>;

dovetail::Window window_of(const Numbers& sizes, std::int64_t dst_offset, const Numbers& dst_strides, std::int64_t src_offset,
                           const Numbers& src_strides, std::size_t itemsize) {
    if (dst_strides.size() != sizes.size() || src_strides.size() != sizes.size())
        throw std::invalid_argument("needs as many strides as sizes");
    dovetail::Window window{{}, dst_offset, src_offset, itemsize};
    for (std::size_t i = 0; i < sizes.size(); ++i) window.axes.push_back({sizes[i], dst_strides[i], src_strides[i]});
    return window;
}

void copy_window(nb::handle dst, nb::handle src, const Numbers& sizes, std::int64_t dst_offset, const Numbers& dst_strides,
                 std::int64_t src_offset, const Numbers& src_strides, std::size_t itemsize) {
    const auto window = window_of(sizes, dst_offset, dst_strides, src_offset, src_strides, itemsize);
    const Buffer dst_buffer(dst, PyBUF_WRITABLE);
    const Buffer src_buffer(src, PyBUF_SIMPLE);
    dovetail::check(window, dst_buffer.bytes(), src_buffer.bytes());
    std::optional<dovetail::GilRelease> released;
    if (dovetail::bytes_moved(window) >= kReleaseFromBytes) released.emplace();
    dovetail::copy(window, dst_buffer.data(), src_buffer.data());
}

const char* compiler() {
#if defined(__clang__)
    return "clang " __clang_version__;
#elif defined(__GNUC__)
    return "gcc " __VERSION__;
#else
    return "C++ compiler";
#endif
}

}  // namespace

NB_MODULE(_native, m) {
    // A daemon thread that is in a run still holds its program when the interpreter ends.
    nb::set_leak_warnings(false);
    m.attr("compiler") = compiler();
    dovetail::bind_program(m);
    dovetail::bind_arrays(m);
    dovetail::bind_fast_calls(m);
    m.def("copy_window", &copy_window, nb::arg("dst"), nb::arg("src"), nb::arg("sizes"), nb::arg("dst_offset"),
          nb::arg("dst_strides"), nb::arg("src_offset"), nb::arg("src_strides"), nb::arg("itemsize"));
}
