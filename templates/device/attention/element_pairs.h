// GPU vocabulary of decoding: the two elements of a word. Part of a template, which has defined before: Element.
#pragma once

static inline Element first_of(uint32_t pair) { return __builtin_bit_cast(Element, static_cast<uint16_t>(pair)); }
static inline Element second_of(uint32_t pair) { return __builtin_bit_cast(Element, static_cast<uint16_t>(pair >> 16)); }
