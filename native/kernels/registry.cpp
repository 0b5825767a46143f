#include "kernels/kernels.h"

namespace dovetail {

Factory factory_of(const std::string& kernel) {
    static const std::map<std::string, Factory> table = {
        {"copy", make_copy},
        {"conv", make_conv},
        {"conv_transpose", make_conv_transpose},
        {"chain", make_chain},
        {"quantized_conv", make_quantized_conv},
        {"byte_pool", make_byte_pool},
        {"pool", make_pool},
        {"recurrent", make_recurrent},
        {"resize", make_resize},
        {"reduce", make_reduce},
        {"softmax", make_softmax},
        {"log_softmax", make_log_softmax},
        {"layer_norm", make_layer_norm},
        {"rms_norm", make_rms_norm},
        {"lrn", make_lrn},
        {"suppress", make_suppress},
        {"top_k", make_top_k},
        {"arg_extreme", make_arg_extreme},
        {"cum_sum", make_cum_sum},
        {"range", make_range},
        {"tree_ensemble", make_tree_ensemble},
        {"matmul", make_matmul},
        {"concat", make_concat},
        {"split", make_split},
        {"fill", make_fill},
        {"gather", make_gather},
        {"gather_elements", make_gather_elements},
        {"gather_nd", make_gather_nd},
    };
    const auto found = table.find(kernel);
    return found == table.end() ? nullptr : found->second;
}

}  // namespace dovetail
