// What `muster doctor` prints, and the exit status that goes with it.
#pragma once

#include <span>
#include <string>

#include "findings.h"

namespace muster::doctor {

inline constexpr int kSchema = 1;  // of the JSON: raised when a field goes or changes its meaning; new ones may come

// 0: nothing, or notes alone; 1: warnings; 2: errors.
int exit_status(std::span<const Located> findings);

std::string text_report(const Job& job, std::span<const Located> findings);
std::string json_report(const Job& job, std::span<const Located> findings);

}  // namespace muster::doctor
