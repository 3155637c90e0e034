// Parts of making a communicator that several ways to make one share.
#pragma once

#include "comm/state.h"

namespace muster {

// What NCCL_COMM_BLOCKING and, where it isn't set, the Config say.
bool is_blocking(const Options& options, const Config& config);
void take_options(Communicator::Impl& impl, Options options);
// Makes a communicator whose rank, size, config and options are known: its ranks meet in the id. Blocks.
void meet_in(const std::shared_ptr<Communicator::Impl>& impl, const UniqueId& id);

}  // namespace muster
