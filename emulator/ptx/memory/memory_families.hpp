// The families of instructions on memory, each read by a function of its own. `made.slots` has the operands already.
#pragma once
#include "emulator/ptx/program.hpp"

namespace ejk::ptx {

bool decode_load_store(const Parsed& parsed, Instruction& made);  // ld, ldu, st
bool decode_atomic(const Parsed& parsed, Instruction& made);      // atom, red
bool decode_address(const Parsed& parsed, Instruction& made);     // cvta, cvta.to, mapa, getctarank, isspacep, createpolicy

bool decode_barrier(const Parsed& parsed, Instruction& made);      // mbarrier
bool decode_small_copy(const Parsed& parsed, Instruction& made);   // cp.async, its groups, cp.async.mbarrier.arrive
bool decode_bulk_group(const Parsed& parsed, Instruction& made);   // cp.async.bulk.commit_group, wait_group, prefetch
bool decode_bulk_copy(const Parsed& parsed, Instruction& made);    // cp.async.bulk, cp.reduce.async.bulk of bytes in a row
bool decode_tensor_copy(const Parsed& parsed, Instruction& made);  // the same of tensors' boxes
bool decode_remote(const Parsed& parsed, Instruction& made);       // st.async, red.async

}  // namespace ejk::ptx
