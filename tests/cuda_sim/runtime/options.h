// The simulator's options: environment variables named CUDASIM_*, which docs/cuda_sim.md lists. A name that is none of them, or a
// value that is no number where one is wanted, ends the program.
#pragma once

#include <string>

namespace cuda_sim {

long option(const char* name, long otherwise);
std::string text_option(const char* name, const std::string& otherwise = "");

}  // namespace cuda_sim
