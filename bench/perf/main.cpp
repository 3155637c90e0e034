// main of the *_perf programs.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <optional>
#include <set>
#include <system_error>
#include <thread>

#include "perf/collective.h"
#include "perf/job.h"
#include "perf/monitor.h"
#include "perf/report.h"
#include "perf/sweep.h"

namespace muster::perf {
namespace {

// Bytes of this process that are in memory now.
double resident() {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("VmRSS:")) return std::strtod(line.c_str() + 6, nullptr) * 1024;
  return 0;
}

double minimum_bandwidth() {
  const char* text = std::getenv("NCCL_TESTS_MIN_BW");
  if (!text || !*text) return -1;
  double value = 0;
  const char* const end = text + std::string_view(text).size();
  const auto [rest, error] = std::from_chars(text, end, value);
  if (error != std::errc() || rest != end || !(value >= 0))
    throw Error(Result::invalid_usage,
                fmt::format("NCCL_TESTS_MIN_BW='{}' can't be read: a number of GB/s is wanted", text));
  return value;
}

Exit exit_of(const Error& error) {
  return error.code() == Result::timeout         ? Exit::timeout
         : error.code() == Result::invalid_usage ? Exit::invalid_usage
                                                 : Exit::library;
}

// Memory is what bounds ranks of one host, where data comes from it and times are not of a few calls.
bool wants_roof(const Args& args, const Job& job, size_t buffer_bytes) {
  const auto elsewhere = [&](const ProcessInfo& p) {
    return std::string_view(p.host) != job.processes[0].host;
  };
  return args.roof && args.memory != Memory::gpu && !args.rotate && !args.cpu_time && args.iterations >= 10 &&
         goes_round(args, args.max_bytes, buffer_bytes) &&
         std::none_of(job.processes.begin(), job.processes.end(), elsewhere);
}

// The GPUs to use; null: host memory.
std::unique_ptr<Gpus> choose_memory(Args& args) {
  std::string why;
  std::unique_ptr<Gpus> gpus;
  if (args.memory == Memory::either || args.memory == Memory::gpu) gpus = find_gpus(why);
  if (!gpus && args.memory == Memory::gpu) throw Error(Result::invalid_usage, "--buffers gpu: " + why);
  set_memory(args, gpus ? Memory::gpu : args.memory == Memory::malloc ? Memory::malloc : Memory::alloc);
  return gpus;
}

bool ranks_share_a_gpu(const Job& job) {
  return std::set<int>(job.devices_here.begin(), job.devices_here.end()).size() < job.devices_here.size();
}

Exit conclude(Job& job, Totals totals, double minimum_bandwidth, Report* report) {
  totals.wrong = sum_over_jobs(job, totals.wrong);
  if (report) report->footer(totals, minimum_bandwidth);
  job.gpu_ranks.clear();
  for (Communicator& c : job.ranks) c.destroy();
  if (job.world) job.world.destroy();
  return totals.wrong || !totals.fast(minimum_bandwidth) ? Exit::wrong_data : Exit::success;
}

Exit run(Args& args, const Collective& collective, const std::string& program, int argc, char** argv) {
  const double minimum = minimum_bandwidth();
  const std::unique_ptr<Gpus> gpus = choose_memory(args);
  if (!gpus && std::getenv("NCCL_TESTS_DEVICE"))
    args.notes.push_back("NCCL_TESTS_DEVICE: there are no devices to choose from on host memory");
  if (const char* blocking = std::getenv("NCCL_COMM_BLOCKING"); blocking && std::string_view(blocking) == "0")
    args.notes.push_back(
        "NCCL_COMM_BLOCKING=0: calls are waited for all the same, as what is timed ends with them");
  setenv("NCCL_COMM_BLOCKING", "1", 1);
  const double before = resident();
  Job job = join_job(args, gpus.get());
  const double connected = resident();
  if (gpus && args.null_stream && ranks_share_a_gpu(job))
    throw Error(
        Result::invalid_usage,
        fmt::format(
            "-y 1: {} ranks of a process would wait for each other on one default stream; there are {} GPUs",
            job.devices_here.size(), gpus->count()));
  if (collective.rooted && args.root >= job.nranks)
    throw Error(Result::invalid_usage, fmt::format("-r {}: there are {} ranks", args.root, job.nranks));
  const std::string obstacle = collective.prepare(args, job.nranks);
  const size_t buffer_bytes = plan_buffers(args, job, collective);

  std::unique_ptr<Report> report;
  if (job.prints) {
    report = std::make_unique<Report>(args, job, program, argc, argv);
    report->header(buffer_bytes);
  }
  if (!obstacle.empty()) {
    if (report) report->skipped(obstacle);
    return conclude(job, Totals{}, minimum, report.get());
  }
  std::mutex making;  // of job.ranks, while threads fill it
  Monitor monitor(
      [&] {
        const std::lock_guard lock(making);
        for (Communicator& c : job.ranks)
          if (c) c.abort();
        for (const auto& gpu : job.gpu_ranks)
          if (gpu) gpu->abort();
      },
      args.timeout_seconds, job.prints && isatty(STDERR_FILENO));

  double with_buffers = 0;
  Totals totals;
  const auto work = [&](int thread) {
    std::optional<Sweep> sweep;  // ends when all calls have been aborted
    try {
      const int begin = thread * args.ranks_per_thread;
      const std::span<Communicator> mine(&job.ranks[static_cast<size_t>(begin)],
                                         static_cast<size_t>(args.ranks_per_thread));
      if (!mine[0]) {
        std::vector<Communicator> made = make_communicators(job, begin, begin + args.ranks_per_thread);
        const std::lock_guard lock(making);
        std::move(made.begin(), made.end(), mine.begin());
        if (monitor.failure() != Exit::success)
          for (Communicator& c : mine) c.abort();
      }
      std::span<std::unique_ptr<GpuRank>> mine_on_gpus;
      if (gpus) {
        mine_on_gpus = std::span(job.gpu_ranks).subspan(static_cast<size_t>(begin), mine.size());
        auto made = gpus->make_ranks(
            mine, std::span(job.devices_here).subspan(static_cast<size_t>(begin), mine.size()), args);
        const std::lock_guard lock(making);
        std::move(made.begin(), made.end(), mine_on_gpus.begin());
        if (monitor.failure() != Exit::success)
          for (const auto& gpu : mine_on_gpus) gpu->abort();
      }
      sweep.emplace(args, collective, mine, mine_on_gpus, job.first_rank() + begin, buffer_bytes,
                    thread == 0 ? &monitor : nullptr, thread == 0 ? report.get() : nullptr);
      if (thread == 0) with_buffers = resident();
      sweep->run(wants_roof(args, job, buffer_bytes) ? sweep->copy_rate() : 0);
      if (thread == 0) totals = sweep->totals();
    } catch (const Error& e) {
      monitor.fail(exit_of(e), fmt::format("{}: {}: {}", program, name_of(e.code()), e.what()));
    } catch (const std::exception& e) {
      monitor.fail(Exit::internal, fmt::format("{}: {}", program, e.what()));
    }
  };
  std::vector<std::thread> others;
  try {
    for (int t = 1; t < args.threads; ++t) others.emplace_back(work, t);
  } catch (const std::system_error& e) {
    monitor.fail(Exit::internal,
                 fmt::format("{}: a thread can't be started: {}. Raise the limit of processes "
                             "(ulimit -u, or pids.max of the control group)",
                             program, e.what()));
  }
  work(0);
  for (std::thread& t : others) t.join();
  if (monitor.failure() != Exit::success) return monitor.failure();

  if (report && args.memory_report)
    report->memory(
        fmt::format("communicators {} | with buffers {} | at the end {} (resident, process of rank 0)",
                    human_bytes(connected - before), human_bytes(with_buffers - before),
                    human_bytes(resident() - before)));
  return conclude(job, totals, minimum, report.get());
}

}  // namespace

int run_perf(int argc, char** argv, const Collective& collective) {
  const std::string program = std::string(collective.name) + "_perf";
  Parsed parsed = parse_args(argc, argv, collective.reduces, collective.rooted);
  if (!parsed.run) return static_cast<int>(parsed.exit);
  try {
    return static_cast<int>(run(parsed.args, collective, program, argc, argv));
  } catch (const Error& e) {
    fmt::print(stderr, "{}: {}: {}\n", program, name_of(e.code()), e.what());
    return static_cast<int>(exit_of(e));
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}: {}\n", program, e.what());
    return static_cast<int>(Exit::internal);
  }
}

}  // namespace muster::perf
