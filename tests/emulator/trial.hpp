// A template, as it is or with one word changed, on the emulator against the float64 reference, in a process of its own.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "emulator/simt.hpp"
#include "tests/changed_store.hpp"

namespace ejk {

// A change (tests/changed_store.hpp) of a template, or of a header it includes.
struct Mutation {
  std::string word;
  int occurrence = 0;
  std::string by;
  std::string header{};  // "device/x.h"; empty: the template itself
};

struct Subject {
  std::string root;  // holds specs/ and templates/
  std::string kernel, case_name;
  std::string template_file;                    // calls go to the variants of it
  std::map<std::string, std::int64_t> sizes{};  // dims, and attributes that follow them, instead of the case's; empty: several varied ones
  std::string law{};                            // of the reference's properties, judged on the first call, too
  int device = 0;                               // of the emulator: 0 is NVIDIA's warp, 1 CDNA, 2 RDNA 3, 3 RDNA 4
  std::string variant{};                        // of those of the template; empty: the first that takes the call
  bool operator==(const Subject&) const = default;
};

enum class Verdict {
  right,    // every call gave the reference's result, and the same bits in both orders of threads
  wrong,    // a call did not
  refused,  // the emulator reported an error
  crashed,  // the process was ended: by a sanitizer, a fault, or after so much processor time that it hangs
  broken    // the trial says nothing: no image, or no call that the template serves
};
struct Outcome {
  Verdict verdict = Verdict::broken;
  std::string words;
};

test::Change change_of(const Subject& subject, const Mutation& mutation);
// Several calls like the case, in both orders of threads; none after one that is wrong. Throws std::invalid_argument if the text has no
// such word.
Outcome try_template(const Subject& subject, const std::optional<Mutation>& mutation);

// Of rows of mutants the first of each subject: the templates as they are, each tried once, however many mutants it has.
template <class Row>
std::vector<Row> first_of_each_subject(std::span<const Row> mutants) {
  std::vector<Row> firsts;
  for (const auto& row : mutants)
    if (std::none_of(firsts.begin(), firsts.end(), [&](const Row& first) { return first.subject == row.subject; })) firsts.push_back(row);
  return firsts;
}

}  // namespace ejk
