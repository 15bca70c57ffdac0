// wgmma: products of a warpgroup, D [64][N] = A [64][depth] B [depth][N] (+ D). Warp w of the four computes rows 16 w .. 16 w + 15.
#include "emulator/ptx/matrix/wgmma.hpp"

#include <array>
#include <bit>
#include <deque>

#include <fmt/format.h>

#include "emulator/ptx/matrix/matrix_decode.hpp"
#include "emulator/ptx/matrix/wgmma_tile.hpp"

namespace ejk::ptx {
namespace {

struct WgmmaForm {
  MatrixProduct product;  // what does not depend on the warp
  Sums sums = Sums::single;
  bool a_in_registers = false, add_inverted = false;
  std::size_t a = 0, b = 0, add = 0;  // slots; D's are the first
};

const WgmmaForm& form_of(const Instruction& instruction) { return *static_cast<const WgmmaForm*>(instruction.extra.get()); }

// A product as it was issued: registers of A and D are read when it runs.
struct WgmmaIssued {
  const Instruction* instruction = nullptr;
  std::uint64_t a = 0, b = 0;  // descriptors
  bool add = false;
};

struct WgmmaQueue {
  std::deque<WgmmaIssued> products;  // that have not run, in the order of their issue
  std::deque<std::uint64_t> groups;  // that nobody has waited for: how many products had been issued at each one's end
  std::uint64_t issued = 0, run = 0, waited = 0;
};

void run_product(Warp& warp, const WgmmaIssued& issued) {
  alignas(64) thread_local char of_a[4 * 128], of_b[32 * 256];
  const auto& form = form_of(*issued.instruction);
  const Slot* slots = issued.instruction->slots.data();
  auto product = form.product;
  if (form.a_in_registers) {
    for (std::size_t i = 0; i < 4; ++i) product.a[i] = warp.lanes_of<std::uint32_t>(slots[form.a + i]);
  } else {
    copy_tile(*warp.block, WgmmaTile(issued.a), product.a_rows, 2 * (warp.number % 4), 2, of_a);
    const auto* words = reinterpret_cast<const std::uint32_t*>(of_a);  // of 8 rows all pieces, then of the next 8
    for (int i = 0; i < 2; ++i) {
      product.a[i] = words + 64 * i;
      product.a[i + 2] = words + 64 * i + 32;
    }
  }
  copy_tile(*warp.block, WgmmaTile(issued.b), product.b_rows, 0, product.groups, of_b);
  product.b = reinterpret_cast<const std::uint32_t*>(of_b);
  product.file = warp.file.get();
  product.d = slots;
  product.c = issued.add ? slots : nullptr;
  multiply_sums(form.sums, product);
}

WgmmaQueue& queue_of(Warp& warp) {
  if (!warp.products) warp.products = std::make_shared<WgmmaQueue>();
  return *static_cast<WgmmaQueue*>(warp.products.get());
}

// The value that all lanes must have.
std::uint64_t uniform_descriptor(Warp& warp, Slot slot, const char* which) {
  const auto* values = warp.lanes_of<std::uint64_t>(slot);
  for (int lane = 1; lane < lanes; ++lane)
    if (values[lane] != values[0])
      throw Fault(fmt::format("wgmma.mma_async: the descriptor of {} is {:#x} in lane 0 and {:#x} in lane {}, where all must have the same",
                              which, values[0], values[lane], lane));
  return values[0];
}

bool uniform_predicate(Warp& warp, Slot slot) {
  const auto mask = warp.predicate(slot);
  if (mask != 0 && mask != all_lanes)
    throw Fault(fmt::format("wgmma.mma_async: scale-d is true in {} of 32 lanes, where all must have the same", std::popcount(mask)));
  return mask != 0;
}

// So that so many of its products have run.
void run_until(Warp& warp, std::uint64_t count) {
  auto& queue = queue_of(warp);
  for (; queue.run < count; ++queue.run) {
    run_product(warp, queue.products.front());
    queue.products.pop_front();
  }
}

// The four warps of its warpgroup.
std::array<Warp*, 4> warpgroup_of(Warp& warp) {
  const auto& warps = warp.block->warps;
  const auto first = static_cast<std::size_t>(warp.number / 4 * 4);
  if (first + 4 > warps.size()) throw Fault(fmt::format("wgmma needs warpgroups of four warps, and this CTA has {} warps", warps.size()));
  std::array<Warp*, 4> group{};
  for (std::size_t i = 0; i < 4; ++i) group[i] = warps[first + i].get();
  return group;
}

void run_wgmma(Warp& warp, const Instruction& instruction) {
  require_whole_warp(warp, instruction);
  const auto& form = form_of(instruction);
  WgmmaIssued issued;
  issued.instruction = &instruction;
  if (!form.a_in_registers) issued.a = uniform_descriptor(warp, instruction.slots[form.a], "A");
  issued.b = uniform_descriptor(warp, instruction.slots[form.b], "B");
  issued.add = uniform_predicate(warp, instruction.slots[form.add]) != form.add_inverted;
  auto& queue = queue_of(warp);
  ++queue.issued;
  queue.products.push_back(issued);
  if (warp.block->grid->pace == Pace::eager) run_until(warp, queue.issued);
}

void run_wgmma_fence(Warp& warp, const Instruction& instruction) { require_whole_warp(warp, instruction); }

void run_wgmma_commit(Warp& warp, const Instruction& instruction) {
  require_whole_warp(warp, instruction);
  auto& queue = queue_of(warp);
  queue.groups.push_back(queue.issued);
}

// Until as many groups are left as Instruction::bits says. A product is one of the whole warpgroup: none of its warps goes on before all
// have issued it, and then it has read its operands for all of them.
void run_wgmma_wait(Warp& warp, const Instruction& instruction) {
  require_whole_warp(warp, instruction);
  auto& queue = queue_of(warp);
  if (queue.groups.size() <= instruction.bits) return;
  const auto over = queue.groups.size() - instruction.bits;
  const auto wanted = queue.groups[over - 1];
  const auto group = warpgroup_of(warp);
  for (auto* each : group)
    if (queue_of(*each).issued < wanted) {
      warp.progress = Progress::wait;
      return;
    }
  for (auto* each : group) run_until(*each, wanted);
  queue.waited = wanted;
  queue.groups.erase(queue.groups.begin(), queue.groups.begin() + static_cast<std::ptrdiff_t>(over));
}

// An immediate operand that has one of two values.
bool immediate_is(const Parsed& parsed, std::size_t operand, std::int64_t yes, std::int64_t no) {
  const auto& it = parsed.operands[operand];
  const auto value = static_cast<std::int64_t>(static_cast<std::int32_t>(it.bits));
  if (it.kind != OperandKind::constant || (value != yes && value != no))
    refuse_matrix(parsed, fmt::format("operand {}, which should be {} or {},", operand, no, yes));
  return value == yes;
}

void check_wgmma_types(const Parsed& parsed, const WgmmaForm& form, const MatrixShape& shape) {
  const auto& product = form.product;
  const int width = elements_per_word(product.a_format);
  const bool integer = form.sums == Sums::integer || form.sums == Sums::saturated;
  const bool same_kind = is_integer(product.a_format) == integer && is_integer(product.b_format) == integer &&
                         elements_per_word(product.b_format) == width && (width == 4 || product.a_format == product.b_format);
  if (!same_kind || (form.sums == Sums::half && product.a_format != FactorType::f16 && width != 4))
    refuse_matrix(parsed, "this choice of types");
  if (shape.m != 64 || shape.n < 8 || shape.n > 256 || shape.n % 8 != 0 || shape.k != 8 * width)
    refuse_matrix(parsed, fmt::format("the shape m{}n{}k{}", shape.m, shape.n, shape.k));
}

// {d...}, A, B, scale-d [, scale-a, scale-b [, transposed A unless it is in registers, transposed B]]
void decode_wgmma_product(const Parsed& parsed, Instruction& made) {
  const auto shape = matrix_shape(parsed);
  const auto& words = parsed.words;
  if (!shape || words.size() < 8 || words[2] != "sync") refuse_matrix(parsed, "this form");  // .sp: sparse
  WgmmaForm form;
  auto& product = form.product;
  form.sums = matrix_sums(parsed, words[words.size() - 3]);
  product.a_format = matrix_format(parsed, words[words.size() - 2]);
  product.b_format = matrix_format(parsed, words[words.size() - 1]);
  check_wgmma_types(parsed, form, *shape);
  product.groups = shape->n / 8;
  const bool signs = !is_integer(product.a_format), orders = elements_per_word(product.a_format) == 2;
  form.a_in_registers = parsed.operands.size() > 1 && parsed.operands[1].kind == OperandKind::vector;
  require_operands(parsed, 4u + (signs ? 2 : 0) + (orders ? (form.a_in_registers ? 1 : 2) : 0));
  const auto sums = static_cast<std::size_t>(registers_per_group(form.sums) * product.groups);
  require_parts(parsed, 0, sums);
  require_parts(parsed, 1, form.a_in_registers ? 4 : 1);
  if (signs) product.negative = immediate_is(parsed, 4, -1, 1) != immediate_is(parsed, 5, -1, 1);
  if (orders && !form.a_in_registers) product.a_rows = immediate_is(parsed, 6, 1, 0);
  if (orders) product.b_rows = immediate_is(parsed, form.a_in_registers ? 6 : 7, 1, 0);
  form.a = sums;
  form.b = form.a + (form.a_in_registers ? 4 : 1);
  form.add = form.b + 1;
  form.add_inverted = parsed.operands[3].inverted;
  made.extra = std::make_shared<WgmmaForm>(form);
  made.run = run_wgmma;
}

}  // namespace

bool has_pending_products(const Warp& warp) {
  if (!warp.products) return false;
  const auto& queue = *static_cast<const WgmmaQueue*>(warp.products.get());
  return queue.issued != queue.waited;
}

void decode_wgmma(const Parsed& parsed, Instruction& made) {
  const auto what = parsed.words.size() > 1 ? parsed.words[1] : std::string_view();
  if (what == "mma_async") return decode_wgmma_product(parsed, made);
  if (what == "fence") {
    made.run = run_wgmma_fence;
  } else if (what == "commit_group") {
    made.run = run_wgmma_commit;
  } else if (what == "wait_group") {
    require_operands(parsed, 1);
    if (parsed.operands[0].kind != OperandKind::constant) refuse_matrix(parsed, "a number of groups that is no constant");
    made.bits = parsed.operands[0].bits;
    made.run = run_wgmma_wait;
  } else {
    refuse_matrix(parsed, "this form");
  }
}

}  // namespace ejk::ptx
