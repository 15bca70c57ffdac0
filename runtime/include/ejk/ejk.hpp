// ejk for C++: tensors, calls, kernels and configs. The typed functions of each kernel are in ejk/<kernel>.hpp, made from its spec.
#pragma once
#include "ejk/call.hpp"
#include "ejk/device.hpp"
#include "ejk/json.hpp"
#include "ejk/kernel.hpp"
#include "ejk/label.hpp"
#include "ejk/library.hpp"
#include "ejk/params.hpp"
#include "ejk/record.hpp"
#include "ejk/result.hpp"
#include "ejk/sharding.hpp"
#include "ejk/tensor.hpp"
#include "ejk/value.hpp"
