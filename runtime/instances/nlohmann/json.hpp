// nlohmann's json.hpp, in its place for all that links ejk_spec: what reads and writes JSON text is compiled once, in
// spec/read/json_instances.cpp, not anew in each file that says parse() or dump(): 3 s of each under sanitizers, half a second of each at
// -O2. The list is that of 3.11; with another version nothing is declared here, and all is as nlohmann has it.
#pragma once
#pragma GCC system_header  // for include_next
#include_next <nlohmann/json.hpp>

#if NLOHMANN_JSON_VERSION_MAJOR == 3 && NLOHMANN_JSON_VERSION_MINOR == 11
#ifndef EJK_JSON_INSTANCE
#define EJK_JSON_INSTANCE extern template
#endif

// Text comes as a std::string, or as a pointer and an end (std::string_view).
#define EJK_JSON_READER(Json, Iterator)                                                  \
  EJK_JSON_INSTANCE class detail::lexer<Json, detail::iterator_input_adapter<Iterator>>; \
  EJK_JSON_INSTANCE class detail::parser<Json, detail::iterator_input_adapter<Iterator>>;
#define EJK_JSON_INSTANCES(Json)                                      \
  EJK_JSON_INSTANCE class detail::serializer<Json>;                   \
  EJK_JSON_INSTANCE class detail::json_sax_dom_parser<Json>;          \
  EJK_JSON_INSTANCE class detail::json_sax_dom_callback_parser<Json>; \
  EJK_JSON_READER(Json, std::string::const_iterator)                  \
  EJK_JSON_READER(Json, const char*)

NLOHMANN_JSON_NAMESPACE_BEGIN
EJK_JSON_INSTANCES(json)
EJK_JSON_INSTANCES(ordered_json)
NLOHMANN_JSON_NAMESPACE_END

#undef EJK_JSON_INSTANCES
#undef EJK_JSON_READER
#undef EJK_JSON_INSTANCE
#endif
