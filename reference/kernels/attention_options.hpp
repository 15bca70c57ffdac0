// Every option of attention alone, and every two together.
#pragma once
#include "reference/kernels/attention_cases.hpp"

namespace ejk::reference {

// Small calls of f32 and bf16, most of which see some keys and not others. `gradient`: of flash_attention_bwd, all gradients wanted.
std::vector<OptionCase> attention_option_cases(bool gradient);

// The same of blocksparse_attention, with what it has besides.
std::vector<OptionCase> blocksparse_option_cases(bool gradient);

}  // namespace ejk::reference
