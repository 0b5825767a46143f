#include "kernels/kernels.h"

namespace dovetail {

Factory factory_of(const std::string& kernel) {
    static const std::map<std::string, Factory> table = {
        {"copy", make_copy},
        {"conv", make_conv},
        {"conv_transpose", make_conv_transpose},
        {"dynamic_quantize", make_dynamic_quantize},
        {"elementwise", make_elementwise},
        {"quantized_conv", make_quantized_conv},
        {"quantized_pool", make_quantized_pool},
        {"pool", make_pool},
        {"recurrent", make_recurrent},
        {"resize", make_resize},
        {"reduce", make_reduce},
        {"softmax", make_softmax},
        {"log_softmax", make_log_softmax},
        {"layer_norm", make_layer_norm},
        {"rms_norm", make_rms_norm},
        {"lrn", make_lrn},
        {"nms", make_nms},
        {"top_k", make_top_k},
        {"argminmax", make_argminmax},
        {"cumsum", make_cumsum},
        {"range", make_range},
        {"tree_ensemble", make_tree_ensemble},
        {"matmul", make_matmul},
        {"plain_matmul", make_plain_matmul},
        {"fill", make_fill},
        {"gather", make_gather},
        {"gather_elements", make_gather_elements},
        {"gather_nd", make_gather_nd},
        {"scatter_elements", make_scatter_elements},
        {"scatter_nd", make_scatter_nd},
        {"scatter_update", make_scatter_update},
        {"trilu", make_trilu},
        {"dft", make_dft},
        {"grid_sample", make_grid_sample},
        {"label_encoder", make_label_encoder},
        {"random_uniform", make_random_uniform},
        {"squared_distances", make_squared_distances},
    };
    const auto factory = table.find(kernel);
    return factory == table.end() ? nullptr : factory->second;
}

}  // namespace dovetail
