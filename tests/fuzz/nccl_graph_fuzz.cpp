// NCCL's graph files.
#include "topology/nccl_graph.h"

#include "fuzz.h"

using namespace muster;
using namespace muster::fuzz;
using namespace muster::topology;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ChannelGraphs g;
  if (!succeeds_or_throws({Result::invalid_argument}, [&] { g = read_nccl_graph(Input(data, size).rest(), "input"); }))
    return 0;
  size_t channels = 0;
  for (const ChannelGraph& graph : g.graphs) {
    channels += graph.channels.size();
    for (const GraphChannel& c : graph.channels)
      for (const GraphHop& h : c) require(h.device >= 0, "devices are counted from 0");
  }
  for (const Finding& f : g.findings) require(f.where.starts_with("input:"), "a finding says where");
  require(describe(g).empty() == (channels == 0), "channels are told");
  return 0;
}
