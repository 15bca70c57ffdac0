// Inside bind(): the state its steps share. Each step throws CallError at the first rule that is broken.
#pragma once
#include <string>

#include "spec/call/binding.hpp"

namespace ejk::spec {

struct Binder {
  const Spec& spec;
  Binding& binding;
  std::map<std::string, std::string, std::less<>> origins;       // dim → the tensor (or definition) that bound it
  std::map<std::string, std::string, std::less<>> type_origins;  // type variable → what bound it: "the type of lhs"

  [[noreturn]] void fail(const std::string& sentence) const;  // "<kernel>: <sentence>"

  // The steps, in order.
  void check_names() const;
  void take_attributes();
  void choose_form();
  void check_tensors();  // presence, rank, sizes, strides
  void choose_types();   // by attributes that name one
  void bind_types();
  void default_types();  // of type variables that no tensor given binds
  void bind_dims();
  void derive_dims(bool strict);
  void finish_attributes();    // defaults that are expressions over dims
  void add_served();           // attributes that only the serving kernel has
  void check_outputs() const;  // and inputs that are updated: written memory overlaps nothing
};

bool is_empty(const TensorFacts& facts);
bool row_major(const std::vector<std::int64_t>& shape, std::vector<std::int64_t>& strides);  // false: they overflow
bool takes_form(const Shape& shape, std::string_view form);
std::string shape_text(const std::vector<std::int64_t>& shape);                // "[2, 8, 4]"
std::string shape_text(const Shape& shape);                                    // "[B, Sk, Hkv, D]"
std::string expected_shapes(const TensorSpec& tensor, std::string_view form);  // alternatives, joined by " or "

}  // namespace ejk::spec
