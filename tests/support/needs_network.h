// First in a test of several hosts: skips it, saying why, where this process has no network that could join them.
#pragma once

#include <gtest/gtest.h>

#include "support/outcome.h"
#include "support/processes.h"
#include "transports/make_network.h"

#define NEED_NETWORK()                                                            \
  if (!muster::test::is_rank_process())                                           \
    if (const auto options = muster::Options::inspect(); muster::offered_networks(options).empty()) \
  GTEST_SKIP() << "no network here: " << muster::missing_networks(options)

// First in a test of UCX: it joins the hosts until the scope ends.
#define OVER_UCX()                                              \
  const muster::test::Variable only_network("NCCL_NET", "ucx"); \
  NEED_NETWORK()
