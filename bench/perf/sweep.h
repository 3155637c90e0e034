// One thread's part of the measurement: the same loop over types, operators, roots and sizes on every thread
// of every process, which meet in it by the collectives themselves.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "perf/buffer.h"
#include "perf/collective.h"
#include "perf/job.h"
#include "perf/monitor.h"
#include "perf/report.h"

namespace muster::perf {

// Bytes of one rank's send and receive buffer: the largest row, and more where that is little, so that calls
// that step through it leave the caches. Reduces args.max_bytes (with a note) where memory doesn't suffice.
size_t plan_buffers(Args& args, const Job& job, const Collective& collective);

// Whether a row's timed calls, at `bytes` each, use all of the buffers: in shorter ones caches take part of
// the writing.
bool goes_round(const Args& args, size_t bytes, size_t buffer_bytes);

class Sweep {
 public:
  // ranks: this thread's. report: nullptr on threads that don't print. first_rank: number of ranks[0].
  // gpu_ranks: what calls go by where they go to GPUs, else empty; `ranks` then serve for meeting only.
  Sweep(const Args& args, const Collective& collective, std::span<Communicator> ranks,
        std::span<std::unique_ptr<GpuRank>> gpu_ranks, int first_rank, size_t buffer_bytes, Monitor* monitor,
        Report* report);

  // Bytes read and written per second when all ranks copy from buffer to buffer at once. Called on all
  // threads.
  double copy_rate();
  // memory_rate: what copy_rate said; 0 = rows have no roof. Throws muster::Error.
  void run(double memory_rate);
  const Totals& totals() const { return totals_; }

 private:
  struct Rank {
    Communicator& communicator;
    int number;
    GpuRank* gpu;        // null: on host memory
    HostStream* stream;  // null: calls run on this thread
    Buffer send, recv;
    Layout layout;                    // of the row
    Window send_window, recv_window;  // with -R 2
  };
  struct Setting {  // of one row
    NamedType type;
    NamedOp op;
    int root;
    size_t bytes;
  };

  void register_buffers();
  void open_group_of_all();  // of this thread's ranks
  void close_group_of_all();
  void run_table();
  void run_row(const Setting& setting, Data& data);
  Measurement measure(const Setting& setting, Data& data, bool in_place);
  double run_iterations(const Setting& setting, const Data& data, bool in_place, int iterations,
                        std::vector<double>* each);
  size_t verify(const Setting& setting, Data& data, bool in_place, size_t run);

  void issue(const Setting& setting, const Data& data, bool in_place, size_t calls);
  void issue_one(const Setting& setting, const Data& data, bool in_place, size_t offset, int round);
  double run_graph(const Setting& setting, const Data& data, bool in_place, int iterations);
  void capture(const Setting& setting, const Data& data, bool in_place, int iterations, size_t calls);
  void replay();
  void complete();
  void barrier();
  std::vector<double> all_gather(const std::vector<double>& mine);  // one value per rank
  double combine(const std::vector<double>& seconds_of_ranks) const;
  Place place_of(const Setting& setting, const Rank& rank, bool in_place) const;
  void begin_row(const Setting& setting);
  size_t offset_of(size_t place) const;

  const Args& args_;
  const Collective& collective_;
  const size_t buffer_bytes_;
  Monitor* monitor_;
  Report* report_;
  int nranks_;
  int rounds_;
  std::vector<Rank> ranks_;
  // Of the row: bytes from one call's place in the buffers to the next one's, how many fit, and which comes
  // next.
  size_t stride_ = 0, places_ = 1, next_place_ = 0;
  size_t verified_runs_ = 0;
  double memory_rate_ = 0;
  Totals totals_;
  std::vector<std::unique_ptr<HostStream>> streams_;  // last: what is queued on one uses buffers of all ranks
};

}  // namespace muster::perf
