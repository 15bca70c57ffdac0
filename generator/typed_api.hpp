// The typed C++ API of a kernel, made from its spec: include/ejk/<kernel>.hpp.
#pragma once
#include <string>

#include "spec/model.hpp"

namespace ejk::generator {

// The header's text. It includes <ejk/call.hpp> alone.
std::string typed_api(const spec::Spec& spec);

// Words that the header and the Python functions share.
std::string camel_case(const std::string& name);  // "flash_attention" → "FlashAttention"
std::string wrapped(const std::string& text, const std::string& prefix, std::size_t columns = 120);  // each line starts with prefix
std::string shapes_text(const spec::Spec& spec, const spec::TensorSpec& tensor);                     // "[B, Sq] (batched) or [Tq] (packed)"

std::string tensor_text(const spec::Spec& spec, const spec::TensorSpec& tensor);  // "E [B, Sq, Hq, D]. Queries."
std::string rule_text(const spec::Requirement& requirement);                      // a rule without the values found
bool is_literal_default(const spec::Attribute& attribute);                        // depends on nothing
spec::Value literal_default(const spec::Attribute& attribute);                    // of the attribute's type

}  // namespace ejk::generator
