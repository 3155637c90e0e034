// Making calls, directly or from graphs, and waiting for them.
#include "perf/sweep.h"

namespace muster::perf {

// So many calls, each in the next place.
void Sweep::issue(const Setting& s, const Data& data, bool in_place, size_t calls) {
  const bool grouped = calls > 1 || (ranks_.size() > 1 && !ranks_[0].stream);
  for (int round = 0; round < rounds_; ++round) {
    if (grouped) open_group_of_all();
    for (size_t i = 0; i < calls; ++i) issue_one(s, data, in_place, offset_of(next_place_ + i), round);
    if (grouped) close_group_of_all();
  }
  next_place_ = (next_place_ + calls) % places_;
}

void Sweep::issue_one(const Setting& s, const Data& data, bool in_place, size_t offset, int round) {
  const size_t element = size_of(s.type.type);
  for (Rank& r : ranks_) {
    const Layout& l = r.layout;
    std::byte* const recv = r.recv.data() + offset;
    const Call call = {.send = in_place ? recv + l.in_place_send * element : r.send.data() + offset,
                       .recv = in_place ? recv + l.in_place_recv * element : recv,
                       .count = l.count,
                       .type = s.type.type,
                       .op = data.op_of(r.number),
                       .root = s.root,
                       .round = round,
                       .stream = r.stream,
                       .sends = l.sends,
                       .recvs = l.recvs};
    if (r.gpu)
      collective_.gpu_call(*r.gpu, call);
    else
      collective_.call(r.communicator, call);
  }
}

void Sweep::complete() {
  for (Rank& r : ranks_) {
    if (r.gpu) r.gpu->synchronize();
    if (r.stream) r.stream->synchronize();
  }
}

void Sweep::barrier() {
  if (ranks_.size() == 1)
    ranks_[0].communicator.barrier();
  else
    all_gather(std::vector<double>(ranks_.size(), 0));  // one thread can't wait in several barriers
}

std::vector<double> Sweep::all_gather(const std::vector<double>& mine) {
  std::vector<std::vector<double>> all(ranks_.size(), std::vector<double>(static_cast<size_t>(nranks_)));
  group_start();
  for (size_t i = 0; i < ranks_.size(); ++i)
    ranks_[i].communicator.all_gather(&mine[i], all[i].data(), 1, DataType::float64, ranks_[i].stream);
  group_end();
  complete();
  return all[0];
}

void Sweep::capture(const Setting& s, const Data& data, bool in_place, int iterations, size_t calls) {
  for (Rank& r : ranks_) r.gpu->begin_capture();
  for (int i = 0; i < iterations; ++i) issue(s, data, in_place, calls);
  for (Rank& r : ranks_) r.gpu->end_capture();
}

void Sweep::replay() {
  for (Rank& r : ranks_) r.gpu->replay();
}

}  // namespace muster::perf
