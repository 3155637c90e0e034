// NCCL_TESTS_SPLIT: which job a process belongs to.
#pragma once

namespace muster::perf {

// The colour that NCCL_TESTS_SPLIT ("MOD 2", "%2", "AND 0x3", "&0b11", "OR 1", "|1", "DIV 4", "/4") or
// NCCL_TESTS_SPLIT_MASK (hexadecimal) gives a process. Throws invalid_usage for anything else.
int split_color(int process, const char* split, const char* mask);

}  // namespace muster::perf
