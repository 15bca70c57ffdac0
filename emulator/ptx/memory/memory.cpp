// Instructions on memory, by family; and those that order or hint, which do nothing here: all that a warp does is seen at once by all
// others.
#include "emulator/ptx/memory/memory_families.hpp"

namespace ejk::ptx {
namespace {

void do_nothing(Warp&, const Instruction&) {}

bool decode_hint(const Parsed& parsed, Instruction& made) {
  const auto word = parsed.words.front();
  if (word != "fence" && word != "membar" && word != "prefetch" && word != "prefetchu" && word != "applypriority" && word != "discard")
    return false;
  made.run = do_nothing;
  return true;
}

}  // namespace

bool decode_memory(const Parsed& parsed, Instruction& made) {
  return decode_load_store(parsed, made) || decode_atomic(parsed, made) || decode_address(parsed, made) || decode_hint(parsed, made);
}

}  // namespace ejk::ptx
