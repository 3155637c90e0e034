// What tests ask of GPUs.
#pragma once

#include <gtest/gtest.h>

#include "device/cuda/runtime.h"

// At the beginning of a test: skips it, visibly, where there are fewer.
#define MUSTER_NEEDS_GPUS(n)                                                                        \
  if (::muster::cuda::devices().count < (n))                                                        \
  GTEST_SKIP() << "needs " << (n) << " GPUs, there are " << ::muster::cuda::devices().count << ". " \
               << ::muster::cuda::devices().why_none
