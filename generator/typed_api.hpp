// The typed C++ API of a kernel, made from its spec: include/ejk/<kernel>.hpp.
#pragma once
#include <string>

#include "spec/model.hpp"

namespace ejk::generator {

// The header's text. It includes <ejk/call.hpp> alone.
std::string typed_api(const spec::Spec& spec);

// Comments and shapes that the header shows.
std::string camel_case(const std::string& name);  // "flash_attention" → "FlashAttention"
std::string wrapped(const std::string& text, const std::string& prefix, std::size_t columns = 120);  // each line starts with prefix
std::string shapes_text(const spec::Spec& spec, const spec::TensorSpec& tensor);                     // "[B, Sq] (batched) or [Tq] (packed)"

}  // namespace ejk::generator
