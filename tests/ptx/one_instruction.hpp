// A warp built by hand and single instructions run on it: registers come to be when they are first named.
#pragma once
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstring>
#include <map>
#include <new>
#include <string>
#include <vector>

#include "emulator/ptx/machine.hpp"
#include "tests/ptx/zeroed_file.hpp"

namespace ejk::ptx {

class WarpOfRegisters {
 public:
  using Values = std::array<std::uint64_t, lanes>;

  WarpOfRegisters() {
    warp.active = warp.path = warp.alive = all_lanes;
    warp.file = zeroed_file(capacity);
  }

  // Bits of a register, in every lane or by lane. A predicate is true where its bits are not 0.
  void set(const std::string& name, std::uint64_t bits) {
    for (int lane = 0; lane < lanes; ++lane) set(name, lane, bits);
  }
  void set(const std::string& name, int lane, std::uint64_t bits) {
    const Operand operand = reg(name);
    if (operand.reg == RegisterKind::predicate) {
      auto& mask = warp.predicate(operand.slot);
      mask = (mask & ~(1u << lane)) | (bits ? 1u << lane : 0u);
    } else if (operand.reg == RegisterKind::word64) {
      warp.lanes_of<std::uint64_t>(operand.slot)[lane] = bits;
    } else {
      warp.lanes_of<std::uint32_t>(operand.slot)[lane] = static_cast<std::uint32_t>(bits);
    }
  }
  void set_float(const std::string& name, float value) { set(name, std::bit_cast<std::uint32_t>(value)); }
  void set_double(const std::string& name, double value) { set(name, std::bit_cast<std::uint64_t>(value)); }

  std::uint64_t get(const std::string& name, int lane = 0) {
    const Operand operand = reg(name);
    if (operand.reg == RegisterKind::predicate) return warp.predicate(operand.slot) >> lane & 1;
    if (operand.reg == RegisterKind::word64) return warp.lanes_of<std::uint64_t>(operand.slot)[lane];
    return warp.lanes_of<std::uint32_t>(operand.slot)[lane];
  }
  float get_float(const std::string& name, int lane = 0) { return std::bit_cast<float>(static_cast<std::uint32_t>(get(name, lane))); }
  double get_double(const std::string& name, int lane = 0) { return std::bit_cast<double>(get(name, lane)); }
  std::uint32_t mask(const std::string& name) { return warp.predicate(reg(name).slot); }
  void set_mask(const std::string& name, std::uint32_t mask) { warp.predicate(reg(name).slot) = mask; }

  // Decodes and runs "add.s32 %r3, %r1, 5"; false if the decoder says that it is not of its family.
  bool run(Decoder decoder, const std::string& text) {
    texts_.push_back(std::make_unique<std::string>(text));
    const std::string_view all = *texts_.back();
    Parsed parsed;
    parsed.text = all;
    parsed.opcode = all.substr(0, all.find(' '));
    for (std::size_t at = 0; at <= parsed.opcode.size();) {
      const auto end = std::min(parsed.opcode.find('.', at), parsed.opcode.size());
      parsed.words.push_back(parsed.opcode.substr(at, end - at));
      at = end + 1;
    }
    rest_ = all.substr(parsed.opcode.size());
    while (!rest_.empty()) parsed.operands.push_back(operand(parsed));
    Instruction made;
    for (const auto& each : parsed.operands) {
      if (each.kind != OperandKind::vector) made.slots.push_back(each.slot);
      for (const auto& part : each.parts) made.slots.push_back(part.slot);
    }
    if (!decoder(parsed, made)) return false;
    made.run(warp, made);
    return true;
  }
  void scalar(const std::string& text) { EXPECT_TRUE(run(decode_scalar, text)) << text; }
  void words(const std::string& text) { EXPECT_TRUE(run(decode_warp, text)) << text; }

  Warp warp;

 private:
  static constexpr Slot capacity = 256;

  Operand reg(const std::string& name) {
    const auto starts = [&](const char* prefix) { return name.rfind(prefix, 0) == 0; };
    Operand made;
    made.kind = OperandKind::reg;
    made.reg = starts("%p")                                           ? RegisterKind::predicate
               : starts("%rd") || starts("%fd") || name == "%clock64" ? RegisterKind::word64
               : starts("%rs")                                        ? RegisterKind::word16
                                                                      : RegisterKind::word32;
    const auto [found, is_new] = slots_.try_emplace(name, next_);
    if (is_new) next_ += made.reg == RegisterKind::word64 ? 2 : 1;
    made.slot = found->second;
    return made;
  }

  void skip() { rest_.remove_prefix(std::min(rest_.find_first_not_of(" ,|"), rest_.size())); }

  Operand operand(const Parsed& parsed) {
    skip();
    Operand made;
    if (rest_.front() == '{') {
      rest_.remove_prefix(1);
      made.kind = OperandKind::vector;
      while (rest_.front() != '}') made.parts.push_back(operand(parsed)), skip();
      rest_.remove_prefix(1);
      return made;
    }
    const bool inverted = rest_.front() == '!';
    if (inverted) rest_.remove_prefix(1);
    const std::string word(rest_.substr(0, rest_.find_first_of(" ,|}")));
    rest_.remove_prefix(word.size());
    if (word == "_") return made;
    made = word.front() == '%' ? reg(word) : constant(word, parsed.type().ends_with("64"));
    made.inverted = inverted;
    return made;
  }

  Operand constant(const std::string& word, bool wide) {
    const auto bits = static_cast<std::uint64_t>(std::stoll(word, nullptr, 0));
    const std::string name = (wide ? "%rd#" : "%r#") + word;
    set(name, bits);
    Operand made = reg(name);
    made.kind = OperandKind::constant;
    made.bits = bits;
    return made;
  }

  std::map<std::string, Slot> slots_;
  Slot next_ = 0;
  std::string_view rest_;
  std::vector<std::unique_ptr<std::string>> texts_;
};

}  // namespace ejk::ptx
