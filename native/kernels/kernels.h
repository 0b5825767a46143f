// The factories of all kernels, by family. Each kernel has one line here and one in registry.cpp.
#pragma once

#include "kernel.h"

namespace dovetail {

std::unique_ptr<Kernel> make_conv(const Spec& spec, WeightCache& cache);               // conv.cpp
std::unique_ptr<Kernel> make_conv_transpose(const Spec& spec, WeightCache& cache);     // conv_transpose.cpp
std::unique_ptr<Kernel> make_elementwise(const Spec& spec, WeightCache& cache);        // elementwise.cpp
std::unique_ptr<Kernel> make_quantized_conv(const Spec& spec, WeightCache& cache);     // quantized.cpp
std::unique_ptr<Kernel> make_quantized_pool(const Spec& spec, WeightCache& cache);     // quantized_pool.cpp
std::unique_ptr<Kernel> make_pool(const Spec& spec, WeightCache& cache);               // pool.cpp
std::unique_ptr<Kernel> make_recurrent(const Spec& spec, WeightCache& cache);          // recurrent.cpp
std::unique_ptr<Kernel> make_resize(const Spec& spec, WeightCache& cache);             // resize.cpp
std::unique_ptr<Kernel> make_reduce(const Spec& spec, WeightCache& cache);             // reduce.cpp
std::unique_ptr<Kernel> make_softmax(const Spec& spec, WeightCache& cache);            // norm.cpp
std::unique_ptr<Kernel> make_log_softmax(const Spec& spec, WeightCache& cache);        // norm.cpp
std::unique_ptr<Kernel> make_layer_norm(const Spec& spec, WeightCache& cache);         // norm.cpp
std::unique_ptr<Kernel> make_rms_norm(const Spec& spec, WeightCache& cache);           // norm.cpp
std::unique_ptr<Kernel> make_lrn(const Spec& spec, WeightCache& cache);                // norm.cpp
std::unique_ptr<Kernel> make_nms(const Spec& spec, WeightCache& cache);                // nms.cpp
std::unique_ptr<Kernel> make_top_k(const Spec& spec, WeightCache& cache);              // top_k.cpp
std::unique_ptr<Kernel> make_argminmax(const Spec& spec, WeightCache& cache);          // argminmax.cpp
std::unique_ptr<Kernel> make_cumsum(const Spec& spec, WeightCache& cache);             // cumsum.cpp
std::unique_ptr<Kernel> make_range(const Spec& spec, WeightCache& cache);              // range.cpp
std::unique_ptr<Kernel> make_tree_ensemble(const Spec& spec, WeightCache& cache);      // tree_ensemble.cpp
std::unique_ptr<Kernel> make_matmul(const Spec& spec, WeightCache& cache);             // matmul.cpp
std::unique_ptr<Kernel> make_plain_matmul(const Spec& spec, WeightCache& cache);       // matmul_types.cpp
std::unique_ptr<Kernel> make_copy(const Spec& spec, WeightCache& cache);               // copy/steps.cpp
std::unique_ptr<Kernel> make_fill(const Spec& spec, WeightCache& cache);               // copy/steps.cpp
std::unique_ptr<Kernel> make_gather(const Spec& spec, WeightCache& cache);             // gather.cpp
std::unique_ptr<Kernel> make_gather_elements(const Spec& spec, WeightCache& cache);    // gather.cpp
std::unique_ptr<Kernel> make_gather_nd(const Spec& spec, WeightCache& cache);          // gather.cpp
std::unique_ptr<Kernel> make_scatter_elements(const Spec& spec, WeightCache& cache);   // scatter.cpp
std::unique_ptr<Kernel> make_scatter_nd(const Spec& spec, WeightCache& cache);         // scatter.cpp
std::unique_ptr<Kernel> make_scatter_update(const Spec& spec, WeightCache& cache);     // scatter.cpp
std::unique_ptr<Kernel> make_trilu(const Spec& spec, WeightCache& cache);              // trilu.cpp
std::unique_ptr<Kernel> make_dft(const Spec& spec, WeightCache& cache);                // dft.cpp
std::unique_ptr<Kernel> make_grid_sample(const Spec& spec, WeightCache& cache);        // grid_sample.cpp
std::unique_ptr<Kernel> make_label_encoder(const Spec& spec, WeightCache& cache);      // label_encoder.cpp
std::unique_ptr<Kernel> make_random_uniform(const Spec& spec, WeightCache& cache);     // random_uniform.cpp
std::unique_ptr<Kernel> make_squared_distances(const Spec& spec, WeightCache& cache);  // distances.cpp
std::unique_ptr<Kernel> make_dynamic_quantize(const Spec& spec, WeightCache& cache);   // dynamic_quantize.cpp

}  // namespace dovetail
