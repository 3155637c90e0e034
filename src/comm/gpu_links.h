// What joins the GPUs of a communicator's ranks on this host, for prices.
#pragma once

#include <string>
#include <vector>

#include "plan/links.h"
#include "topology/machine.h"

namespace muster {

// `buses`: of the ranks' GPUs, by rank; ranks may share one. Where the machine doesn't know all of them, or
// nothing joins them, they count as far from each other. What GPUs themselves can't exceed isn't in it, nor
// Links::sm.
Links links_between(const topology::Machine& machine, const std::vector<std::string>& buses);

// As far as GPUs of a host can be: by way of its CPUs, whose links nobody knows.
Links far_links(int ranks);

}  // namespace muster
