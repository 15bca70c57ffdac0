// A PTX module as data: entries, their parameters, variables and instructions, with registers resolved to places in a register file.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ejk::ptx {

constexpr int lanes = 32;  // threads of a warp
constexpr std::uint32_t all_lanes = 0xffffffffu;

// Where a register lies in a warp's register file, in units of 128 bytes: 32 lanes of 4 bytes. Registers of 64 bits take two units, and
// their lanes are 8 bytes each. Those of 16 bits (and of 8) have the value in the low half of each lane's 4 bytes. A predicate is one unit
// whose first word is a mask of lanes.
using Slot = std::uint32_t;
constexpr Slot no_slot = 0xffffffffu;

enum class RegisterKind : std::uint8_t { predicate, word16, word32, word64 };

enum class OperandKind : std::uint8_t {
  reg,       // slot, and `inverted` where "!p" says so
  constant,  // an immediate or a symbol's address: `bits`; a slot that holds it in every lane, filled when a warp starts
  address,  // [slot + offset] or [bits + offset]: `slot` is that of the base (a constant's, where the base is a symbol or a number), `wide`
            // says whether it has 64 bits
  vector,   // {a, b, ...}: `parts`
  sink      // "_"
};

struct Operand {
  OperandKind kind = OperandKind::sink;
  RegisterKind reg = RegisterKind::word32;  // of reg and constant; a constant is word64 only where the instruction wants 64 bits
  bool inverted = false, wide = false;
  Slot slot = no_slot;
  std::uint64_t bits = 0;      // of a constant, as the instruction's type has it
  std::int64_t offset = 0;     // of an address
  std::vector<Operand> parts;  // of a vector; of an address: coordinates of a tensor ("[map, {x, y}]"), or nothing
};

class Warp;
struct Instruction;
using Handler = void (*)(Warp&, const Instruction&);

struct Instruction {
  // What the machine runs. The warp's `active` mask says for which lanes; the guard is in it already.
  Handler run = nullptr;
  Slot guard = no_slot;  // a predicate
  bool guard_inverted = false;
  // Of the machine's turns: whether others may see that it was done, and how much of a warp's turn it takes (more for what is read again
  // and again until another thread has written it).
  bool is_seen = false;
  std::uint16_t cost = 1;
  // Slots of the operands in the order of the text, as many as there are; a vector's parts take one each. What a handler needs beyond these
  // it puts into `extra`, `bits` and `number` when it is decoded.
  std::vector<Slot> slots;
  std::int64_t offset = 0;  // of the (first) address
  std::uint64_t bits = 0;
  int number = 0, width = 0;
  std::shared_ptr<const void> extra;
  // Control flow (branches alone): where to, and where lanes that part here meet again; index of an instruction.
  std::uint32_t target = 0, meet = 0;
  bool is_branch = false, is_exit = false;  // is_exit: ret of an entry, exit
  // For messages: the line of the PTX text, and its words.
  int line = 0;
  std::string_view text;
};

// An instruction as the text has it, which a decoder makes an Instruction of.
struct Parsed {
  std::string_view text;                // without guard and semicolon
  std::string_view opcode;              // "ld.shared.v4.f32"
  std::vector<std::string_view> words;  // its parts: "ld", "shared", "v4", "f32"
  std::vector<Operand> operands;
  std::string_view label;  // of bra: its target; of call: the function's name
  int line = 0;

  bool has(std::string_view word) const {  // a part of the opcode
    for (const auto& each : words)
      if (each == word) return true;
    return false;
  }
  std::string_view type() const { return words.back(); }
};

// Looks at an instruction and fills `made` (run, slots, ...): true if it is one of its family. Throws std::runtime_error for one that is,
// but in a form that is not emulated. `made.slots` is empty before.
using Decoder = bool (*)(const Parsed& parsed, Instruction& made);
bool decode_scalar(const Parsed& parsed, Instruction& made);   // arithmetic, comparisons, conversions, moves
bool decode_warp(const Parsed& parsed, Instruction& made);     // shfl, vote, redux, match, elect, activemask
bool decode_memory(const Parsed& parsed, Instruction& made);   // ld, st, atom, red, cvta, mapa, prefetch, fences
bool decode_copies(const Parsed& parsed, Instruction& made);   // cp.async (all), st.async, mbarrier
bool decode_matrix(const Parsed& parsed, Instruction& made);   // mma, wgmma, ldmatrix, stmatrix, movmatrix
bool decode_control(const Parsed& parsed, Instruction& made);  // bra, ret, bar, barrier, griddepcontrol, setmaxnreg, nanosleep, ...

struct Parameter {
  std::size_t offset = 0, bytes = 0;  // in the entry's parameter block
};

struct Variable {
  std::size_t offset = 0, bytes = 0;
};

struct EntryCode {
  std::string name;
  std::vector<Parameter> parameters;
  std::size_t parameter_bytes = 0;
  std::size_t shared_bytes = 0;  // of its static variables and the module's
  std::size_t local_bytes = 0;   // a thread's
  int most_threads = 1024;       // .maxntid
  bool has_dynamic_shared = false;
  Slot units = 0;  // of the register file
  std::vector<Instruction> code;
  // Constants: the slot, its width in bytes (4 or 8) and value, the same in every lane.
  struct Constant {
    Slot slot = 0;
    int bytes = 4;
    std::uint64_t bits = 0;
  };
  std::vector<Constant> constants;
  // Special registers the code reads: name ("%tid.x") and slot (word32, or word64 for %globaltimer and %clock64).
  std::vector<std::pair<std::string, Slot>> specials;
};

struct Program {
  std::string text;           // owns what the views point into
  int sm = 0;                 // of .target
  std::vector<char> globals;  // memory of .global and .const variables, initialised; aligned to 256 by its allocation
  char* global_memory = nullptr;
  std::map<std::string, EntryCode, std::less<>> entries;
};

// Addresses. A shared address is an offset into the CTA's shared memory, whose first `reserved_shared` bytes belong to the system; that of
// another CTA of the cluster has (rank + 1) << cluster_shift added. A generic address is the host's pointer for global memory; for shared
// and local memory and for the entry's parameters a number with one of these bits set, and the shared or local address, or the offset in
// the parameter block, below.
constexpr std::uint32_t reserved_shared = 1024;
constexpr int cluster_shift = 24;
constexpr std::uint64_t generic_shared = std::uint64_t{1} << 62, generic_local = std::uint64_t{1} << 61,
                        generic_param = std::uint64_t{1} << 60;

// Throws std::runtime_error "line N: ..." for text that is not understood or an instruction that is not emulated.
std::unique_ptr<Program> parse(std::string text);

}  // namespace ejk::ptx
