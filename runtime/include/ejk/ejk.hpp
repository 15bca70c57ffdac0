// ejk for C++: tensors, calls, kernels and configs. The typed functions of each kernel are in ejk/<kernel>.hpp, made from its spec.
#pragma once
#include "ejk/autotune.hpp"
#include "ejk/call.hpp"
#include "ejk/events.hpp"
#include "ejk/kernel.hpp"
#include "ejk/library.hpp"
#include "ejk/policy.hpp"
#include "ejk/records.hpp"
#include "ejk/result.hpp"
#include "ejk/tensor.hpp"
#include "ejk/tuning.hpp"
#include "ejk/value.hpp"
