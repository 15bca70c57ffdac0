// The parser: what instructions, operands and constants PTX text becomes. A decoder that keeps what it is asked stands for all.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>

#include "emulator/ptx/parse/parse.hpp"

namespace ejk::ptx {
namespace {

struct Kept {
  std::string opcode, text;
  std::vector<std::string> words;
  std::vector<Operand> operands;
  std::vector<Slot> slots;
  std::int64_t offset;
  int line;
};
std::vector<Kept> kept;

bool keep(const Parsed& parsed, Instruction& made) {
  if (parsed.words[0] == "unknown") return false;
  if (parsed.words[0] == "broken") throw std::runtime_error("form 'x' is not emulated");
  kept.push_back({std::string(parsed.opcode),
                  std::string(parsed.text),
                  {parsed.words.begin(), parsed.words.end()},
                  parsed.operands,
                  made.slots,
                  made.offset,
                  parsed.line});
  made.run = [](Warp&, const Instruction&) {};
  return true;
}

std::unique_ptr<Program> parse_kept(const std::string& text) {
  static constexpr Decoder decoders[] = {keep};
  kept.clear();
  return parse_with(text, decoders);
}

const std::string head = ".version 9.0\n.target sm_90a\n.address_size 64\n";

// An entry "k" of that body; its first line is line 5.
std::unique_ptr<Program> parse_body(const std::string& body, const std::string& module = "") {
  return parse_kept(head + module + ".visible .entry k(.param .u32 a, .param .u64 b)\n{" + body + "\nret;\n}\n");
}

const EntryCode& entry(const std::unique_ptr<Program>& program) { return program->entries.at("k"); }

std::uint64_t constant_bits(const EntryCode& code, Slot slot) {
  for (const auto& constant : code.constants)
    if (constant.slot == slot) return constant.bits;
  ADD_FAILURE() << "no constant has slot " << slot;
  return 0;
}

int constant_bytes(const EntryCode& code, Slot slot) {
  for (const auto& constant : code.constants)
    if (constant.slot == slot) return constant.bytes;
  return 0;
}

std::string error_of(const std::string& body) {
  try {
    parse_body(body);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

TEST(ParseModule, ReadsTargetAndLimits) {
  const auto program = parse_kept(head + ".entry k()\n.maxntid 128, 2, 1\n.minnctapersm 1\n{ ret; }\n.entry other() { ret; }\n");
  EXPECT_EQ(program->sm, 90);
  EXPECT_EQ(entry(program).most_threads, 256);
  EXPECT_EQ(program->entries.at("other").most_threads, 1024);
}

TEST(ParseModule, PlacesParametersWithTheirAlignment) {
  const auto program = parse_kept(
      head + ".entry k(.param .u32 a, .param .align 64 .b8 map[128], .param .u8 c, .param .u64 .ptr .global .align 1 d) { ret; }");
  const auto& parameters = entry(program).parameters;
  ASSERT_EQ(parameters.size(), 4u);
  EXPECT_EQ(parameters[1].offset, 64u);
  EXPECT_EQ(parameters[1].bytes, 128u);
  EXPECT_EQ(parameters[2].offset, 192u);
  EXPECT_EQ(parameters[3].offset, 200u);
  EXPECT_EQ(entry(program).parameter_bytes, 208u);
}

TEST(ParseModule, InitialisesGlobals) {
  const auto program = parse_kept(head +
                                  ".global .align 4 .u32 x = 32;\n.global .align 1 .b8 name[3] = {70, 0x61, 0};\n"
                                  ".const .align 4 .f32 f = 0f3F800000;\n.global .align 8 .u64 to[2] = {generic(x), name+1};\n"
                                  ".global .align 4 .s32 less = -1;\n.global .u32 zero;\n.entry k() { ret; }");
  const char* memory = program->global_memory;
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 256, 0u);
  std::uint32_t word = 0;
  std::memcpy(&word, memory, 4);
  EXPECT_EQ(word, 32u);
  EXPECT_EQ(std::memcmp(memory + 4, "Fa\0", 3), 0);
  std::memcpy(&word, memory + 8, 4);
  EXPECT_EQ(word, 0x3f800000u);
  std::uint64_t addresses[2];
  std::memcpy(addresses, memory + 16, 16);
  EXPECT_EQ(addresses[0], reinterpret_cast<std::uintptr_t>(memory));
  EXPECT_EQ(addresses[1], reinterpret_cast<std::uintptr_t>(memory) + 5);
  std::memcpy(&word, memory + 32, 4);
  EXPECT_EQ(word, 0xffffffffu);
  std::memcpy(&word, memory + 36, 4);
  EXPECT_EQ(word, 0u);
}

TEST(ParseModule, SkipsWhatDoesNotMatter) {
  const auto program =
      parse_kept(head +
                 ".file 1 \"x {\"\n/* { */ // {\n.section .debug_str { .b8 1 }\n.entry k() { // callseq {\n.pragma \"nounroll\";\n"
                 ".loc 1 2 3\nret; }");
  EXPECT_EQ(entry(program).code.size(), 1u);
}

TEST(ParseMemory, DynamicSharedMemoryFollowsTheStatic) {
  const auto program = parse_body(
      ".reg .b64 %rd<4>; .reg .b32 %r<2>; .shared .align 4 .b8 own[12]; mov.u64 %rd1, bytes; mov.u64 %rd2, own+4; mov.u32 %r1, all;"
      "ld.shared.u32 %r1, [bytes+8];",
      ".extern .shared .align 128 .b8 bytes[];\n.shared .align 8 .b8 all[20];\n.shared .align 8 .b8 unused[64];\n");
  const auto& code = entry(program);
  EXPECT_TRUE(code.has_dynamic_shared);
  EXPECT_EQ(code.shared_bytes, 128u);
  EXPECT_EQ(constant_bits(code, kept[0].slots[1]), reserved_shared + 128);
  EXPECT_EQ(kept[0].operands[1].bits, reserved_shared + 128);
  EXPECT_EQ(constant_bits(code, kept[1].slots[1]), reserved_shared + 4);
  EXPECT_EQ(constant_bits(code, kept[2].slots[1]), reserved_shared + 16);
  EXPECT_EQ(constant_bytes(code, kept[2].slots[1]), 4);
  EXPECT_EQ(kept[3].operands[1].kind, OperandKind::address);
  EXPECT_TRUE(kept[3].operands[1].wide);
  EXPECT_EQ(kept[3].operands[1].bits, reserved_shared + 128);
  EXPECT_EQ(kept[3].offset, 8);
}

TEST(ParseMemory, EntryParametersAreOffsets) {
  const auto program = parse_body(".reg .b64 %rd<3>; ld.param.u64 %rd1, [b+0]; mov.b64 %rd2, b; ld.param.u64 %rd1, [%rd2+4];");
  EXPECT_EQ(kept[0].opcode, "ld.param.u64");
  EXPECT_EQ(constant_bits(entry(program), kept[0].slots[1]), 8u);
  EXPECT_EQ(constant_bits(entry(program), kept[1].slots[1]), 8u);
  EXPECT_EQ(kept[2].opcode, "ld.param.u64");
  EXPECT_EQ(kept[2].offset, 4);
}

TEST(ParseMemory, LocalVariablesHaveOffsets) {
  const auto program = parse_body(".local .align 16 .b8 __local_depot0[40]; .local .u64 x; .reg .b64 %SPL; mov.u64 %SPL, x;");
  EXPECT_EQ(constant_bits(entry(program), kept[0].slots[1]), 40u);
  EXPECT_EQ(entry(program).local_bytes, 48u);
}

TEST(ParseOperands, NumbersHaveTheTypeOfTheirPlace) {
  const auto program = parse_body(
      ".reg .b64 %rd<3>; .reg .b32 %r<3>; .reg .f32 %f<3>; .reg .f64 %fd<2>; .reg .b16 %rs<2>; .reg .pred %p<2>;"
      "add.s64 %rd1, %rd1, -2; add.s32 %r1, %r1, -2; shl.b64 %rd1, %rd1, 3; mul.wide.s32 %rd1, %r1, -2; mad.wide.u32 %rd1, %r1, 2, 5;"
      "mov.f32 %f1, 0f3F800000; mov.f64 %fd1, 0d3FF0000000000000; setp.eq.s16 %p1, %rs1, -1; mov.b64 %rd1, {%r1, -1};"
      "mov.pred %p1, -1; bar.sync 1, 64; and.b64 %rd1, %rd1, 0xFFFFFFFF00000000; cvt.u64.u32 %rd1, 7; st.u64 [%rd1], 9;");
  const auto& code = entry(program);
  const auto expect = [&](std::size_t i, std::size_t operand, int bytes, std::uint64_t bits) {
    EXPECT_EQ(constant_bits(code, kept[i].slots[operand]), bits) << kept[i].text;
    EXPECT_EQ(constant_bytes(code, kept[i].slots[operand]), bytes) << kept[i].text;
  };
  expect(0, 2, 8, ~std::uint64_t{1});
  expect(1, 2, 4, 0xfffffffeu);
  expect(2, 2, 4, 3);
  expect(3, 2, 4, 0xfffffffeu);
  expect(4, 2, 4, 2);
  expect(4, 3, 8, 5);
  expect(5, 1, 4, 0x3f800000);
  expect(6, 1, 8, std::bit_cast<std::uint64_t>(1.0));
  expect(7, 2, 4, 0xffff);
  EXPECT_EQ(kept[7].operands[2].reg, RegisterKind::word16);
  expect(8, 2, 4, 0xffffffffu);
  expect(9, 1, 4, 0xffffffffu);
  expect(10, 0, 4, 1);
  expect(10, 1, 4, 64);
  expect(11, 2, 8, 0xffffffff00000000u);
  expect(12, 1, 4, 7);
  expect(13, 1, 8, 9);
  EXPECT_EQ(kept[1].slots[2], kept[3].slots[2]) << "the same number twice has one slot";
}

TEST(ParseOperands, FlattensVectorsAndCoordinates) {
  parse_body(
      ".reg .b64 %rd<3>; .reg .b32 %r<6>; .reg .pred %p<3>; ld.shared.v2.u32 {%r1, _}, [%r2+16];"
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2, %r3}], [%r4];"
      "shfl.sync.bfly.b32 %r1|%p1, %r2, 1, 31, -1; selp.b32 %r1, %r2, %r3, !%p2;");
  ASSERT_EQ(kept[0].slots.size(), 3u);
  EXPECT_EQ(kept[0].slots[1], no_slot);
  EXPECT_EQ(kept[0].offset, 16);
  EXPECT_FALSE(kept[0].operands[1].wide);
  EXPECT_EQ(kept[0].words, (std::vector<std::string>{"ld", "shared", "v2", "u32"}));
  EXPECT_EQ(kept[1].slots.size(), 5u);
  EXPECT_EQ(kept[1].operands[1].parts.size(), 2u);
  EXPECT_EQ(kept[1].words[3], "tensor");
  EXPECT_EQ(kept[1].words[5], "shared::cluster");
  EXPECT_EQ(kept[2].slots.size(), 6u);
  EXPECT_EQ(kept[2].operands[1].reg, RegisterKind::predicate);
  EXPECT_TRUE(kept[3].operands[3].inverted);
}

TEST(ParseOperands, SpecialRegistersAreListed) {
  const auto program =
      parse_body(".reg .b64 %rd<3>; .reg .b32 %r<6>; mov.u32 %r1, %tid.x; mov.u64 %rd1, %globaltimer; mov.u32 %r2, %tid.x;");
  const auto& specials = entry(program).specials;
  ASSERT_EQ(specials.size(), 2u);
  EXPECT_EQ(specials[0], std::pair(std::string("%tid.x"), kept[0].slots[1]));
  EXPECT_EQ(specials[1].second % 2, 0u);
  EXPECT_EQ(kept[0].slots[1], kept[2].slots[1]);
}

TEST(ParseScopes, InnerNamesHideOuterOnes) {
  parse_body(
      ".reg .b32 there, %r<3>; mov.u32 there, 1; { .reg .b64 there; mov.u64 there, 2; { .reg .pred there; mov.pred there, 1; } mov.u64 "
      "there, 3; }"
      "mov.u32 %r1, there;");
  EXPECT_EQ(kept[1].operands[0].reg, RegisterKind::word64);
  EXPECT_EQ(kept[2].operands[0].reg, RegisterKind::predicate);
  EXPECT_EQ(kept[3].slots[0], kept[1].slots[0]);
  EXPECT_EQ(kept[4].slots[1], kept[0].slots[0]);
}

TEST(ParseScopes, LabelsBelongToTheirScope) {
  const auto program = parse_body(
      ".reg .pred %p<2>; { again: nanosleep.u32 1; @%p1 bra again; } { again: nanosleep.u32 2; @!%p1 bra again; bra.uni end; } end:");
  const auto& code = entry(program).code;
  EXPECT_EQ(code[1].target, 0u);
  EXPECT_TRUE(code[1].is_branch);
  EXPECT_EQ(code[1].run, nullptr);
  EXPECT_NE(code[1].guard, no_slot);
  EXPECT_EQ(code[3].target, 2u);
  EXPECT_TRUE(code[3].guard_inverted);
  EXPECT_EQ(code[4].target, 5u);
  EXPECT_TRUE(code[5].is_exit);
}

TEST(ParseCalls, InlinesFunctionsIntoTheirCallers) {
  const auto program = parse_body(
      ".reg .b64 %rd<3>; .reg .f32 %f<3>; .reg .pred %p<2>;\n"
      "{ .reg .b32 temp_param_reg; .param .b64 param0; st.param.b64 [param0+0], %rd1; .param .b32 retval0;\n"
      "call.uni (retval0),\ntwice,\n(\nparam0\n);\nld.param.f32 %f1, [retval0+0]; }\n"
      "@%p1 call nothing, ();",
      ".func (.param .b32 r) twice(.param .b64 x)\n;\n"
      ".func (.param .b32 r) twice(.param .b64 x)\n{ .reg .f32 %f<2>; .reg .b64 %rd<2>; .reg .pred %p<2>; ld.param.u64 %rd1, [x];"
      "@%p1 bra $L; st.param.f32 [r+0], 0f00000000; ret; $L: st.param.f32 [r+0], %f1; ret; }\n"
      ".func nothing() { membar.cta; ret; }\n");
  const auto& code = entry(program).code;
  ASSERT_EQ(code.size(), 10u);
  EXPECT_EQ(kept[0].opcode, "st.local.b64");
  EXPECT_EQ(kept[0].text, "st.param.b64 [param0+0], %rd1");
  EXPECT_EQ(kept[1].opcode, "ld.local.u64");
  EXPECT_EQ(kept[1].words[1], "local");
  EXPECT_EQ(kept[1].operands[1].bits, kept[0].operands[0].bits) << "the parameter is the caller's variable";
  EXPECT_EQ(code[2].target, 5u);
  EXPECT_TRUE(code[4].is_branch) << "a return that is not the function's end";
  EXPECT_EQ(code[4].target, 6u);
  EXPECT_EQ(kept[4].opcode, "ld.local.f32");
  EXPECT_EQ(kept[4].operands[1].bits, kept[3].operands[0].bits) << "the result is the caller's variable";
  EXPECT_TRUE(code[7].guard_inverted && code[7].is_branch) << "a call with a guard";
  EXPECT_EQ(code[7].target, 9u);
  EXPECT_TRUE(code[9].is_exit);
}

TEST(ParseErrors, NameTheLine) {
  EXPECT_EQ(error_of("\nunknown.f32 %x;"), "line 6: '%x' is not declared");
  EXPECT_EQ(error_of("\nunknown.f32 1;"), "line 6: 'unknown.f32' is not emulated");
  EXPECT_EQ(error_of("\n\nbroken.f32 1;"), "line 7: 'broken.f32': form 'x' is not emulated");
  EXPECT_EQ(error_of("\nbra nowhere;"), "line 6: label 'nowhere' is not in this function");
  EXPECT_EQ(error_of("\ncall vprintf, ();"), "line 6: function 'vprintf', which is called, has no body in this module");
  EXPECT_EQ(error_of(".reg .b32 %r<2>; @%r1 ret;"), "line 5: a predicate expected behind '@', '%r1' found");
}

TEST(ParseErrors, FunctionsMayNotCallThemselves) {
  EXPECT_THROW(parse_kept(head + ".func f() { call f, (); ret; } .entry k() { call f, (); ret; }"), std::runtime_error);
}

TEST(ParseInstructions, KeepLineAndText) {
  const auto program = parse_body("\n.reg .b32 %r<3>; .reg .pred %p<2>;\n\n  @%p1 add.s32   %r1, %r1,\n 1 ;");
  const auto& made = entry(program).code[0];
  EXPECT_EQ(made.line, 8);
  EXPECT_EQ(made.text, "add.s32   %r1, %r1,\n 1");
}

// Registers.

TEST(ParseRegisters, ShareSlotsWhenTheyAreNotNeededTogether) {
  std::string body = ".reg .b32 %r<200>; mov.u32 %r0, 1;";
  for (int i = 1; i < 200; ++i) body += "add.s32 %r" + std::to_string(i) + ", %r" + std::to_string(i - 1) + ", 1;";
  EXPECT_LE(entry(parse_body(body)).units, 4u);
}

TEST(ParseRegisters, WhatIsWrittenDoesNotShareWithWhatIsRead) {
  parse_body(".reg .b32 %r<3>; mov.u32 %r1, 1; shfl.sync.idx.b32 %r2, %r1, 0, 31, -1;");
  EXPECT_NE(kept[1].slots[0], kept[1].slots[1]);
}

TEST(ParseRegisters, LiveAroundLoops) {
  // %r1 is read at the loop's beginning alone, but again in the next turn: nothing in the loop may have its slot.
  parse_body(
      ".reg .b32 %r<9>; .reg .pred %p<2>; mov.u32 %r1, 1; loop: add.s32 %r2, %r1, 1; add.s32 %r3, %r2, 1; add.s32 %r4, %r3, 1;"
      "setp.eq.s32 %p1, %r4, 2; @%p1 bra loop;");
  for (std::size_t i = 1; i < 4; ++i) EXPECT_NE(kept[i].slots[0], kept[0].slots[0]);
}

TEST(ParseRegisters, GuardedWritesKeepWhatWasThere) {
  parse_body(
      ".reg .b32 %r<9>; .reg .pred %p<2>; mov.u32 %r1, 1; mov.u32 %r2, 2; st.u32 [%r2], %r2; @%p1 mov.u32 %r1, 3; st.u32 [%r1], %r1;");
  EXPECT_NE(kept[0].slots[0], kept[1].slots[0]);
}

TEST(ParseRegisters, ProductsKeepTheirsUntilTheyAreWaitedFor) {
  const std::string product =
      ".reg .b32 %r<9>; .reg .b64 %rd<3>; mov.u32 %r1, 1;"
      "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%r1}, %rd1, %rd2, 1, 1, 1, 0, 0;";
  parse_body(product + "mov.u32 %r2, 1; wgmma.wait_group.sync.aligned 0;");
  EXPECT_NE(kept[2].slots[0], kept[0].slots[0]);
  parse_body(product + "wgmma.wait_group.sync.aligned 0; mov.u32 %r2, 1;");
  EXPECT_EQ(kept[3].slots[0], kept[0].slots[0]);
}

// Where lanes meet again.

const Instruction& branch(const EntryCode& code, int which) {
  for (const auto& each : code.code)
    if (each.is_branch && each.guard != no_slot && which-- == 0) return each;
  throw std::runtime_error("no such branch");
}

TEST(ParseFlow, ArmsMeetBehindThem) {
  const auto program =
      parse_body(".reg .pred %p<2>; @%p1 bra other; nanosleep.u32 1; bra.uni meet; other: nanosleep.u32 2; meet: nanosleep.u32 3;");
  EXPECT_EQ(branch(entry(program), 0).meet, 4u);
}

TEST(ParseFlow, LoopsMeetBehindTheLoop) {
  const auto program = parse_body(".reg .pred %p<2>; loop: nanosleep.u32 1; @%p1 bra loop; nanosleep.u32 2;");
  EXPECT_EQ(branch(entry(program), 0).meet, 2u);
}

TEST(ParseFlow, NobodyWaitsForLanesThatExit) {
  const auto program = parse_body(
      ".reg .pred %p<4>; @%p1 bra meet; nanosleep.u32 1; @%p2 bra end; nanosleep.u32 2; meet: nanosleep.u32 3; nanosleep.u32 4; end:");
  EXPECT_EQ(branch(entry(program), 0).meet, 4u) << "around an early return";
  EXPECT_EQ(branch(entry(program), 1).meet, entry(program).code.size()) << "the return itself";
}

TEST(ParseFlow, MeetsWithinALoopThatOnlyReturnsLeave) {
  const auto program =
      parse_body(".reg .pred %p<4>; loop: @%p1 bra other; nanosleep.u32 1; other: nanosleep.u32 2; @%p2 bra end; bra.uni loop; end:");
  EXPECT_EQ(branch(entry(program), 0).meet, 2u);
}

}  // namespace
}  // namespace ejk::ptx
