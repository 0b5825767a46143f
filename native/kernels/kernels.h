// The factories of all kernels, by family. One line per kernel here and in table.cpp.
#pragma once

#include "kernel.h"

namespace dovetail {

std::unique_ptr<Step> make_conv(const Spec& spec, Store& store);  // conv.cpp
std::unique_ptr<Step> make_conv_transpose(const Spec& spec, Store& store);  // conv_transpose.cpp
std::unique_ptr<Step> make_chain(const Spec& spec, Store& store);  // chain.cpp
std::unique_ptr<Step> make_quantized_conv(const Spec& spec, Store& store);  // quantized.cpp
std::unique_ptr<Step> make_byte_pool(const Spec& spec, Store& store);  // quantized.cpp
std::unique_ptr<Step> make_pool(const Spec& spec, Store& store);  // pool.cpp
std::unique_ptr<Step> make_recurrent(const Spec& spec, Store& store);  // recurrent.cpp
std::unique_ptr<Step> make_resize(const Spec& spec, Store& store);  // resize.cpp
std::unique_ptr<Step> make_reduce(const Spec& spec, Store& store);  // reduce.cpp
std::unique_ptr<Step> make_softmax(const Spec& spec, Store& store);  // norm.cpp
std::unique_ptr<Step> make_log_softmax(const Spec& spec, Store& store);  // norm.cpp
std::unique_ptr<Step> make_layer_norm(const Spec& spec, Store& store);  // norm.cpp
std::unique_ptr<Step> make_rms_norm(const Spec& spec, Store& store);  // norm.cpp
std::unique_ptr<Step> make_lrn(const Spec& spec, Store& store);  // norm.cpp
std::unique_ptr<Step> make_suppress(const Spec& spec, Store& store);  // suppress.cpp
std::unique_ptr<Step> make_top_k(const Spec& spec, Store& store);  // top_k.cpp
std::unique_ptr<Step> make_arg_extreme(const Spec& spec, Store& store);  // extreme.cpp
std::unique_ptr<Step> make_cum_sum(const Spec& spec, Store& store);  // running.cpp
std::unique_ptr<Step> make_range(const Spec& spec, Store& store);  // running.cpp
std::unique_ptr<Step> make_tree_ensemble(const Spec& spec, Store& store);  // tree_ensemble.cpp
std::unique_ptr<Step> make_matmul(const Spec& spec, Store& store);  // matmul.cpp
std::unique_ptr<Step> make_copy(const Spec& spec, Store& store);    // move.cpp
std::unique_ptr<Step> make_concat(const Spec& spec, Store& store);  // move.cpp
std::unique_ptr<Step> make_split(const Spec& spec, Store& store);   // move.cpp
std::unique_ptr<Step> make_fill(const Spec& spec, Store& store);    // move.cpp
std::unique_ptr<Step> make_gather(const Spec& spec, Store& store);  // gather.cpp
std::unique_ptr<Step> make_gather_elements(const Spec& spec, Store& store);  // gather.cpp
std::unique_ptr<Step> make_gather_nd(const Spec& spec, Store& store);  // gather.cpp

}  // namespace dovetail
