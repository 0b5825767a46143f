// Releases and acquisitions of the interpreter lock by threads that may outlive the interpreter.
//
// Before Python 3.14, a daemon thread that requests the lock of an ending interpreter is terminated by pthread_exit. This
// unwinds the stack, and terminates the process if a frame may not throw, such as a destructor. Here such a thread sleeps until
// the process ends.
#pragma once

#include <Python.h>

#include <chrono>
#include <thread>

namespace dovetail {

[[noreturn]] inline void sleep_forever() {
    for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

class GilRelease {
public:
    GilRelease() : state_(PyEval_SaveThread()) {}
    GilRelease(const GilRelease&) = delete;
    GilRelease& operator=(const GilRelease&) = delete;
    ~GilRelease() {
        try {
            PyEval_RestoreThread(state_);
        } catch (...) {
            sleep_forever();
        }
    }

private:
    PyThreadState* const state_;
};

class GilAcquire {
public:
    GilAcquire() : state_(ensure()) {}
    GilAcquire(const GilAcquire&) = delete;
    GilAcquire& operator=(const GilAcquire&) = delete;
    ~GilAcquire() { PyGILState_Release(state_); }

private:
    static PyGILState_STATE ensure() {
        try {
            return PyGILState_Ensure();
        } catch (...) {
            sleep_forever();
        }
    }

    const PyGILState_STATE state_;
};

}  // namespace dovetail
