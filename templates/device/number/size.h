// GPU vocabulary: the size of a number.
#pragma once

static inline float size_of(float x) { return ${arch.platform == 'simt' ? '__builtin_fabsf' : 'fabsf'}(x); }
