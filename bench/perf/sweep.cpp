#include "perf/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <numeric>

#include "perf/roof.h"

namespace muster::perf {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

constexpr size_t align_up(size_t bytes) { return (bytes + 63) / 64 * 64; }

// Bytes of one buffer, for a row of `bytes`: both sides, and in place the two in one.
size_t bytes_of(const Layout& l, size_t element) {
  return std::max({l.send, l.recv, l.in_place_send + l.send, l.in_place_recv + l.recv}) * element;
}

constexpr size_t kMostCache = size_t{64} << 20;

// Bytes of the largest cache that a core reaches. (sysconf says 0 on some processors, and on others the sum
// of all dies.)
size_t last_cache() {
  size_t largest = 0;
  for (int i = 0; i < 10; ++i) {
    std::ifstream in(fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/size", i));
    size_t size = 0;
    char unit = 0;
    if (!(in >> size)) continue;
    in >> unit;
    largest = std::max(largest, size << (unit == 'K' ? 10 : unit == 'M' ? 20 : unit == 'G' ? 30 : 0));
  }
  return largest ? largest : kMostCache;
}

double sum_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

}  // namespace

size_t plan_buffers(Args& args, const Job& job, const Collective& collective) {
  size_t budget = SIZE_MAX;
  for (const ProcessInfo& p : job.processes) budget = std::min(budget, p.memory / 10 * 9);
  budget /= 2;  // send and receive
  const auto needed = [&](size_t bytes) {
    size_t most = 0;
    for (const NamedType& t : args.types)
      most =
          std::max(most, bytes_of(collective.layout(bytes, size_of(t.type), 0, job.nranks), size_of(t.type)));
    return most;
  };
  if (needed(args.max_bytes) > budget) {
    const size_t wanted = args.max_bytes;
    while (args.max_bytes > args.min_bytes && needed(args.max_bytes) > budget)
      args.max_bytes = std::max(args.min_bytes, args.max_bytes / 2);
    args.notes.push_back(
        fmt::format("-e is {} instead of {}: each rank can have {} of memory for its buffers", args.max_bytes,
                    wanted, human_bytes(static_cast<double>(budget) * 2)));
  }
  const size_t caches = args.memory == Memory::gpu ? 0 : std::min(last_cache(), kMostCache);
  const size_t rotated = args.rotate.value_or(caches);
  return std::max(needed(args.max_bytes), std::min(rotated, budget));
}

bool goes_round(const Args& args, size_t bytes, size_t buffer_bytes) {
  const double calls = static_cast<double>(args.iterations) * args.aggregated;
  return calls * static_cast<double>(bytes) >= static_cast<double>(buffer_bytes);
}

Sweep::Sweep(const Args& args, const Collective& collective, std::span<Communicator> ranks,
             std::span<std::unique_ptr<GpuRank>> gpu_ranks, int first_rank, size_t buffer_bytes,
             Monitor* monitor, Report* report)
    : args_(args),
      collective_(collective),
      buffer_bytes_(buffer_bytes),
      monitor_(monitor),
      report_(report),
      nranks_(ranks[0].size()),
      rounds_(collective.rounds(nranks_)) {
  const bool streams = ranks.size() > 1 && !args.null_stream && gpu_ranks.empty();
  const bool windows = args.registration != Registration::none;
  for (size_t i = 0; i < ranks.size(); ++i) {
    // A start that is off by so many elements of the largest type is off by as many of every other at least.
    size_t element = 1;
    for (const NamedType& t : args.types) element = std::max(element, size_of(t.type));
    const size_t unaligned = args.unaligned * element;
    if (streams) streams_.push_back(std::make_unique<HostStream>());
    GpuRank* const gpu = gpu_ranks.empty() ? nullptr : gpu_ranks[i].get();
    ranks_.push_back(
        {ranks[i], first_rank + static_cast<int>(i), gpu, streams ? streams_.back().get() : nullptr,
         Buffer(buffer_bytes, unaligned, args.memory, gpu, windows),
         Buffer(buffer_bytes, unaligned, args.memory, gpu, windows), Layout{}, Window(), Window()});
  }
  if (args.registration == Registration::windows ||
      (args.registration == Registration::local && ranks_[0].gpu))
    register_buffers();
}

void Sweep::register_buffers() {
  open_group_of_all();  // of this thread's ranks, since each waits for all others
  for (Rank& r : ranks_) {
    if (r.gpu) {
      r.gpu->register_buffer(r.send.data(), r.send.size(), args_.registration);
      r.gpu->register_buffer(r.recv.data(), r.recv.size(), args_.registration);
      continue;
    }
    r.send_window = r.communicator.register_window(r.send.data(), r.send.size());
    r.recv_window = r.communicator.register_window(r.recv.data(), r.recv.size());
  }
  close_group_of_all();
}

void Sweep::open_group_of_all() { ranks_[0].gpu ? open_group(*ranks_[0].gpu) : group_start(); }

void Sweep::close_group_of_all() { ranks_[0].gpu ? close_group(*ranks_[0].gpu) : group_end(); }

double Sweep::copy_rate() {
  std::vector<CopyLoop> loops;  // as many as threads that run this thread's calls
  for (size_t i = 0; i < (ranks_[0].stream ? ranks_.size() : 1); ++i)
    loops.push_back({.from = ranks_[i].send.data(), .to = ranks_[i].recv.data(), .bytes = buffer_bytes_});
  double best = 0;
  // Which is faster depends on the machine.
  for (const bool past_caches : {false, true}) {
    for (CopyLoop& l : loops) l.past_caches = past_caches;
    for (int repetition = 0; repetition < 3; ++repetition) {
      barrier();
      std::vector<double> mine(ranks_.size(), 0);
      mine[0] = perf::copy_rate(loops, 256 << 10, 0.03);  // of all of this thread's ranks
      best = std::max(best, sum_of(all_gather(mine)));
    }
  }
  return best;
}

void Sweep::run(double memory_rate) {
  memory_rate_ = memory_rate;
  for (int cycle = 0; args_.cycles == 0 || cycle < args_.cycles; ++cycle) run_table();
}

void Sweep::run_table() {
  const std::vector<NamedOp> ops =
      collective_.reduces ? args_.ops : std::vector<NamedOp>{{"none", RedOp::sum}};
  const bool all_roots = collective_.rooted && args_.root < 0;
  const int first_root = all_roots ? 0 : args_.root;
  const int last_root = all_roots ? nranks_ - 1 : first_root;
  for (const NamedType& type : args_.types)
    for (const NamedOp& op : ops) {
      Data data(type.type, op.op, nranks_);
      for (int root = first_root; root <= last_root; ++root)
        for (size_t bytes = args_.min_bytes; bytes <= args_.max_bytes;) {
          run_row({type, op, root, bytes}, data);
          const size_t next = next_size(bytes, args_.step_bytes, args_.step_factor);
          if (next == bytes) break;
          bytes = next;
        }
    }
}

void Sweep::begin_row(const Setting& s) {
  const size_t element = size_of(s.type.type);
  size_t used = 1;
  for (Rank& r : ranks_) {
    r.layout = collective_.layout(s.bytes, element, r.number, nranks_);
    used = std::max(used, bytes_of(r.layout, element));
  }
  const size_t position = next_place_ * stride_;
  stride_ = align_up(used);
  places_ = std::max<size_t>(1, buffer_bytes_ / stride_);
  next_place_ = (position + stride_ - 1) / stride_ % places_;
}

void Sweep::run_row(const Setting& s, Data& data) {
  begin_row(s);
  const size_t element = size_of(s.type.type);
  const Layout& l = ranks_[0].layout;
  Row row;
  row.bytes = std::max(l.send, l.recv) * element;
  row.count = l.count;
  row.type = s.type.name;
  row.op = s.op.name;
  row.root = collective_.rooted ? s.root : -1;
  if (monitor_) monitor_->begin_row(fmt::format("{} B {} {}", row.bytes, row.type, row.op));
  row.out_of_place = measure(s, data, false);
  row.in_place = measure(s, data, true);
  if (monitor_) monitor_->end_row();
  totals_.add(row.out_of_place);
  totals_.add(row.in_place);
  if (!report_) return;
  if (args_.plan)
    row.plan = collective_.planned_as
                   ? ranks_[0].communicator.explain(collective_.planned_as, l.count, s.type.type,
                                                    data.op_of(0), s.root)
                   : "each message goes straight to its receiver: there is nothing to choose";
  for (const Measurement* m : {&row.out_of_place, &row.in_place})
    row.summary += collective_.summary(s.bytes, element, nranks_, m->seconds);
  if (memory_rate_ > 0 && goes_round(args_, stride_, buffer_bytes_)) {
    row.least = least_traffic(collective_, s.bytes, element, nranks_, s.root);
    row.roof_seconds = (row.least.read + row.least.written) / memory_rate_;
    row.roof = bandwidth(collective_.traffic, row.bytes, row.roof_seconds, nranks_);
  }
  report_->row(row);
}

Measurement Sweep::measure(const Setting& s, Data& data, bool in_place) {
  const auto phase = [&](const char* out_of_place_name, const char* in_place_name) {
    if (monitor_) monitor_->set_phase(in_place ? in_place_name : out_of_place_name);
  };
  Measurement m;
  phase("out of place, measuring", "in place, measuring");
  run_iterations(s, data, in_place, args_.warmup, nullptr);
  std::vector<double> each;
  const double mine =
      run_iterations(s, data, in_place, args_.iterations, args_.per_iteration ? &each : nullptr);
  m.seconds = combine(all_gather(std::vector<double>(ranks_.size(), mine)));
  for (const double seconds : each) {
    const std::vector<double> all = all_gather(std::vector<double>(ranks_.size(), seconds));
    m.each_iteration.push_back(*std::max_element(all.begin(), all.end()));
  }
  const Layout& l = ranks_[0].layout;
  m.bandwidth =
      bandwidth(collective_.traffic, std::max(l.send, l.recv) * size_of(s.type.type), m.seconds, nranks_);

  if (args_.checks == 0 || (in_place && !collective_.in_place)) return m;
  phase("out of place, verifying", "in place, verifying");
  std::vector<double> wrong(ranks_.size(), 0);
  for (int check = 0; check < args_.checks; ++check)
    wrong[0] +=
        static_cast<double>(verify(s, data, in_place, ++verified_runs_));  // of all of this thread's ranks
  m.wrong = static_cast<size_t>(sum_of(all_gather(wrong)));
  return m;
}

// Seconds per call; with `each`: also of every iteration.
double Sweep::run_iterations(const Setting& s, const Data& data, bool in_place, int iterations,
                             std::vector<double>* each) {
  if (args_.graph_launches > 0 && iterations > 0) return run_graph(s, data, in_place, iterations);
  const auto calls = static_cast<size_t>(args_.aggregated);
  barrier();
  const Clock::time_point begin = Clock::now();
  double apart = 0;  // time spent in meetings that don't count
  for (int i = 0; i < iterations; ++i) {
    const Clock::time_point iteration_begin = each ? Clock::now() : begin;
    issue(s, data, in_place, calls);
    if (args_.blocking || each) complete();
    if (args_.blocking == 1) barrier();
    if (each) each->push_back(seconds_since(iteration_begin) / args_.aggregated);
    if (args_.blocking == 3) {
      const Clock::time_point meeting = Clock::now();
      barrier();
      apart += seconds_since(meeting);
    }
  }
  const double issued = seconds_since(begin) - apart;
  complete();
  const double completed = seconds_since(begin) - apart;
  return iterations == 0 ? 0 : (args_.cpu_time ? issued : completed) / (iterations * args_.aggregated);
}

// Seconds per call, of all launches of a graph of so many iterations.
double Sweep::run_graph(const Setting& s, const Data& data, bool in_place, int iterations) {
  capture(s, data, in_place, iterations, static_cast<size_t>(args_.aggregated));
  barrier();
  const Clock::time_point begin = Clock::now();
  for (int i = 0; i < args_.graph_launches; ++i) replay();
  const double issued = seconds_since(begin);
  complete();
  const double completed = seconds_since(begin);
  return (args_.cpu_time ? issued : completed) / (iterations * args_.aggregated * args_.graph_launches);
}

// Every rank's buffers are filled, everything that must not change is poisoned, and after one call every
// element of every rank, what surrounds it, and what was sent is compared.
size_t Sweep::verify(const Setting& s, Data& data, bool in_place, size_t run) {
  const size_t element = size_of(s.type.type);
  const size_t offset = offset_of(next_place_);
  for (Rank& r : ranks_) {
    const Layout& l = r.layout;
    const size_t end = std::min(buffer_bytes_, offset + bytes_of(l, element));
    BufferView recv(r.recv, offset, end, BufferView::poisoned);
    BufferView send(r.send, offset, end, BufferView::poisoned);
    std::byte* at = in_place ? recv.begin() + l.in_place_send * element : send.begin();
    for (const Content& c : collective_.sent(l, place_of(s, r, in_place))) {
      data.write(at, c, run);
      at += c.count * element;
    }
    recv.store();
    send.store();
  }
  barrier();
  if (args_.graph_launches > 0) {
    capture(s, data, in_place, 1, 1);
    replay();
  } else {
    issue(s, data, in_place, 1);
  }
  complete();

  size_t wrong = 0;
  for (Rank& r : ranks_) {
    const Layout& l = r.layout;
    const size_t used = bytes_of(l, element), end = std::min(buffer_bytes_, offset + used);
    BufferView recv(r.recv, offset, end, BufferView::as_it_is);
    BufferView send(r.send, offset, end, BufferView::as_it_is);
    const std::byte* at = recv.begin();
    for (const Content& c : collective_.expected(l, place_of(s, r, in_place))) {
      wrong += data.count_wrong(at, c, run);
      at += c.count * element;
    }
    wrong += recv.count_touched_around(0, in_place ? used : l.recv * element);
    wrong += send.count_touched_around(0, in_place ? 0 : l.send * element);
    if (in_place) continue;
    at = send.begin();
    for (const Content& c : collective_.sent(l, place_of(s, r, in_place))) {
      wrong += data.count_wrong(at, c, run);
      at += c.count * element;
    }
  }
  return wrong;
}

double Sweep::combine(const std::vector<double>& seconds) const {
  switch (args_.average) {
    case Average::rank0:
      return seconds[0];
    case Average::min:
      return *std::min_element(seconds.begin(), seconds.end());
    case Average::max:
      return *std::max_element(seconds.begin(), seconds.end());
    case Average::mean:
      break;
  }
  return sum_of(seconds) / static_cast<double>(seconds.size());
}

Place Sweep::place_of(const Setting& s, const Rank& rank, bool in_place) const {
  return {.rank = rank.number, .nranks = nranks_, .root = s.root, .in_place = in_place};
}

// Places lie one behind the other, cache line by cache line, round and round, from row to row.
size_t Sweep::offset_of(size_t place) const { return place % places_ * stride_; }

}  // namespace muster::perf
