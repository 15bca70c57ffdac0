// Launches of mla_attention_bwd around flash_attention_bwd's on Hopper. At the end of its backward_wide.sm90.cu, whose constants they use.
#pragma once
#include "device/sm90/sm90_product.h"

constexpr int NOPE = ${Dn}, ROPE = ${Dr}, ROPE_OR_TWO = ROPE > 0 ? ROPE : 2, JOIN_THREADS = 256, SPLIT_THREADS = 256;
static_assert(NOPE + ROPE == D && D % 64 == 0 && ${R} % HOPPER_N == 0);
#include "mla_attention/expand_sm90_entries.h"
#include "mla_attention/join_entry.h"
#include "mla_attention_bwd/row_entries.h"
#include "mla_attention_bwd/product_sm90_entries.h"
