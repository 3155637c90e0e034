// Which cores this process may use: its affinity mask and its control group's CPU quota.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace muster {

// OS indices of the cores in the affinity mask, ascending.
std::vector<int> allowed_cpus();
// The control group's CPU quota in cores (cgroup v2 cpu.max, or v1 cpu.cfs_quota_us), the smallest up the hierarchy;
// 0 when there is none. `root` lets tests give captured files.
double cpu_quota(const std::string& root = "");

// Bytes of the largest cache that the first allowed core reaches, by sysfs; 0 when it doesn't say. (sysconf adds up the
// caches of all dies.)
size_t last_level_cache(const std::string& root = "");

}  // namespace muster
