// The checks of a spec that need no case: names in expressions, archs, what each place may use.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "spec/fault.hpp"
#include "spec/model.hpp"

namespace ejk::spec {

// Of variants that are left unread it judges nothing: whoever reads them has them judged (loader.hpp).
void check_names(const Spec& spec, const std::map<std::string, Arch>& archs, std::vector<Fault>& faults);

// Its parts. check_contract: all but the variants.
void check_contract(const Spec& spec, std::vector<Fault>& faults);
// The kernel's lets: their names are those of the contract, of lets before them, or of some variant; which variant may use which is judged
// where one does. False: there is a fault.
bool check_lets(const Spec& spec, std::vector<Fault>& faults);
void check_variant_names(const Spec& spec, const Variant& variant, const std::map<std::string, Arch>& archs, std::vector<Fault>& faults);

// Faults from that one on are where the file has what they are about, each once: what several variants have of one is written once.
void as_written(const Spec& spec, std::vector<Fault>& faults, std::size_t first);

// "/variants/0/supports/1", or without the index where the clause stands alone.
std::string supports_pointer(const Variant& variant, std::size_t index);

}  // namespace ejk::spec
