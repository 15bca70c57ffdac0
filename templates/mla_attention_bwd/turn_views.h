// GPU vocabulary of mla_attention_bwd on flash_attention_bwd's templates: tensors of the heads of a turn, and nothing of what only flash_attention takes.
#pragma once
#include "mla_attention/head_views.h"
#include "mla_attention_bwd/saved_rows.h"
