// Sets of CPUs as the kernel and hwloc write them. Thread-safe: pure functions.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace muster::topology {

// CPU numbers from here on are taken for a mistake; Linux is built for 8192 at most.
constexpr int kMostCpus = 65536;

// "0-3,8\n": ascending OS indices, empty for an empty text. Nothing for anything else.
std::optional<std::vector<int>> parse_cpu_list(std::string_view text);
// "0000ffff,00000000", "0xff,,0x1": words of 32 bits, the highest first; an empty one is 0. hwloc's
// "0xf...f," for "and all above" is left out. Nothing for anything else.
std::optional<std::vector<int>> parse_cpu_mask(std::string_view text);

// Both ascending.
bool intersect(const std::vector<int>& a, const std::vector<int>& b);
bool contains_all(const std::vector<int>& all, const std::vector<int>& some);

}  // namespace muster::topology
