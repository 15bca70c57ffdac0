// Vocabulary of every backend: what templates of flash_attention and its gradient ask of a call in the packed form, which blocksparse_attention does not have.
#pragma once

constexpr const int32_t *cum_seqlens_q = nullptr, *cum_seqlens_k = nullptr;
