// Which instruction sets Google Highway compiles. Include before hwy/foreach_target.h.
//
//  - The fallback is EMU128, which has every operation. Highway replaces it by SCALAR on g++ < 12.3 because
//  of a
//    compiler bug in 16-bit high multiplies, which we don't use; tests/kernels_test.cpp covers this target
//    too.
//  - SVE is left out: its vectors can't be members of a struct. NEON runs on the same machines.
#pragma once

#ifndef HWY_BROKEN_EMU128
#define HWY_BROKEN_EMU128 0
#endif
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#endif
