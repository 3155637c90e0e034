#include "perf/report.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>

namespace muster::perf {
namespace {

std::string now() { return fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::localtime(std::time(nullptr))); }

const char* name_of(Memory memory) {
  return memory == Memory::gpu ? "GPU" : memory == Memory::alloc ? "muster::mem_alloc" : "malloc";
}

// nccl-tests writes booleans as text.
const char* truth(bool value) { return value ? "true" : "false"; }

// Of all iterations but the first ones that -K leaves out.
Statistics statistics_of(const Measurement& m, int skipped) {
  const auto begin = std::min(static_cast<size_t>(skipped), m.each_iteration.size());
  return statistics({m.each_iteration.begin() + static_cast<std::ptrdiff_t>(begin), m.each_iteration.end()});
}

std::string columns(const Measurement& m, bool per_iteration, int skipped) {
  std::string text = fmt::format("  {}  {}  {}  {:>6}", fixed_width(m.seconds * 1e6, 7),
                                 fixed_width(m.bandwidth.algorithm, 6), fixed_width(m.bandwidth.bus, 6),
                                 m.wrong ? std::to_string(*m.wrong) : "N/A");
  if (per_iteration) {
    const Statistics s = statistics_of(m, skipped);
    text += fmt::format("  {}  {}  {}  {}", fixed_width(s.min * 1e6, 7), fixed_width(s.max * 1e6, 7),
                        fixed_width(s.p99 * 1e6, 7), fixed_width(s.variation_percent(), 7));
  }
  return text;
}

nlohmann::ordered_json json_of(const Measurement& m, bool cpu_time) {
  nlohmann::ordered_json j;
  j[cpu_time ? "cpu_time" : "time"] = m.seconds * 1e6;
  j["alg_bw"] = m.bandwidth.algorithm;
  j["bus_bw"] = m.bandwidth.bus;
  j["nwrong"] = m.wrong ? nlohmann::ordered_json(*m.wrong) : nlohmann::ordered_json(nullptr);
  return j;
}

nlohmann::ordered_json json_of_iterations(const Measurement& m, int skipped) {
  const Statistics s = statistics_of(m, skipped);
  nlohmann::ordered_json j = {
      {"skipped_iterations", skipped}, {"min_us", s.min * 1e6},         {"max_us", s.max * 1e6},
      {"avg_us", s.mean * 1e6},        {"p50_us", s.p50 * 1e6},         {"p95_us", s.p95 * 1e6},
      {"p99_us", s.p99 * 1e6},         {"stdev_us", s.deviation * 1e6}, {"cv_pct", s.variation_percent()}};
  auto& times = j["times_us"] = nlohmann::ordered_json::array();
  for (const double t : m.each_iteration) times.push_back(t * 1e6);
  return j;
}

}  // namespace

std::FILE* create_new_file(const std::string& path, std::string& created) {
  for (int n = -1;; ++n) {
    created = n < 0 ? path : fmt::format("{}.{}", path, n);
    if (std::FILE* file = std::fopen(created.c_str(), "wx")) return file;
    if (errno != EEXIST)
      throw Error(Result::system_error,
                  fmt::format("-J {}: can't be written: {}", created, strerrordesc_np(errno)));
  }
}

std::string roof_line(const Row& row, const std::string& collective, int nranks) {
  const bool bus = row.out_of_place.bandwidth.bus > 0;
  const double reached = bus ? row.out_of_place.bandwidth.bus : row.out_of_place.bandwidth.algorithm;
  const double possible = bus ? row.roof.bus : row.roof.algorithm;
  const double percent = row.roof_seconds / row.out_of_place.seconds * 100;
  return fmt::format(
      "# Roof: best at {} B: {} {:.2f} of {:.2f} GB/s, {:.0f} % of what memory allows here{}. {} of {} "
      "rank{} must read {} "
      "and write {}; all ranks at once copy {:.1f} GB/s",
      row.bytes, bus ? "busbw" : "algbw", reached, possible, percent,
      percent > 100 ? " (more than all: caches hold part of the data)" : "", collective, nranks,
      nranks == 1 ? "" : "s", human_bytes(row.least.read), human_bytes(row.least.written),
      (row.least.read + row.least.written) / row.roof_seconds / 1e9);
}

std::string table_row(const Row& row, bool per_iteration, int skipped) {
  return fmt::format("{:>12}  {:>12}  {:>8}  {:>6}  {:>6}", row.bytes, row.count, row.type, row.op,
                     row.root) +
         columns(row.out_of_place, per_iteration, skipped) + columns(row.in_place, per_iteration, skipped);
}

Report::Report(const Args& args, const Job& job, const std::string& program, int argc, char** argv)
    : args_(args), job_(job), program_(program) {
  if (!args.json_path.empty()) open_json(argc, argv);
}

Report::~Report() {
  if (!json_file_) return;
  json_["end_time"] = now();
  const std::string text = json_.dump(1) + "\n";
  const bool written = std::fwrite(text.data(), 1, text.size(), json_file_) == text.size();
  if (std::fclose(json_file_) != 0 || !written)
    fmt::print(stderr, "{}: -J {}: can't be written: {}\n", program_, args_.json_path,
               strerrordesc_np(errno));
}

void Report::open_json(int argc, char** argv) {
  std::string created;
  json_file_ = create_new_file(args_.json_path, created);
  fmt::print("# Writing JSON output to {}\n", created);
  json_["version"] = 3;
  json_["start_time"] = now();
  json_["args"] = std::vector<std::string>(argv, argv + argc);
  auto& env = json_["env"] = nlohmann::ordered_json::array();  // what bears on the result; never a secret
  for (char** e = environ; *e; ++e) {
    const std::string_view entry = *e;
    if ((entry.starts_with("MUSTER_") || entry.starts_with("NCCL_")) && !entry.starts_with("MUSTER_JOB_KEY="))
      env.push_back(entry);
  }
  json_["muster_version"] = version();
}

void Report::header(size_t buffer_bytes) {
  const Args& a = args_;
  fmt::print("# muster-perf version {} muster-library={}\n", MUSTER_PERF_VERSION, version());
  fmt::print("# Collective test starting: {}\n", program_);
  const bool factor = a.step_factor > 1;
  fmt::print(
      "# nThread {} nGpus {} minBytes {} maxBytes {} step: {}({}) warmup iters: {} iters: {} agg iters: {} "
      "validation: {} "
      "graph: {} unalign: {}\n",
      a.threads, a.ranks_per_thread, a.min_bytes, a.max_bytes, factor ? a.step_factor : a.step_bytes,
      factor ? "factor" : "bytes", a.warmup, a.iterations, a.aggregated, a.checks, a.graph_launches,
      a.unaligned);
  fmt::print("# Memory: {}{}; calls step through {} per buffer{}\n", name_of(a.memory),
             a.registration == Registration::windows                            ? ", registered as windows"
             : a.registration == Registration::local && a.memory == Memory::gpu ? ", registered"
                                                                                : "",
             human_bytes(static_cast<double>(buffer_bytes)),
             a.rotate || a.memory == Memory::gpu ? "" : ", so that caches don't hold what comes next");
  if (a.blocking)
    fmt::print("# Blocking: complete{} after each iteration{}\n", a.blocking == 2 ? "" : " and meet",
               a.blocking == 3 ? "; the time is without the meeting" : "");
  if (a.per_iteration)
    fmt::print("# Per iteration: i_* are of the slowest rank in each, completion included{}\n",
               a.per_iteration_skip ? fmt::format("; without the first {}", a.per_iteration_skip) : "");
  for (const std::string& note : a.notes) fmt::print("# Note: {}\n", note);
  fmt::print("#\n# Using devices\n");

  auto devices = nlohmann::ordered_json::array();
  const int ranks_here = job_.nranks / static_cast<int>(job_.processes.size());
  int rank = 0;
  for (const ProcessInfo& p : job_.everyone)
    for (int i = 0; i < ranks_here; ++i, ++rank) {
      const DeviceInfo& d = job_.devices[static_cast<size_t>(rank)];
      fmt::print("#  Rank {:2} Group {:2} Pid {:6} on {:>10} device {:2} [{}] {}\n", rank, p.color, p.pid,
                 p.host, d.device, d.address, d.model);
      devices.push_back({{"rank", rank},
                         {"group", p.color},
                         {"pid", p.pid},
                         {"hostname", p.host},
                         {"device", d.device},
                         {"device_hex", d.address},
                         {"device_info", d.model}});
    }
  auto& config = json_["config"];
  config = {{"nthreads", a.threads},
            {"ngpus", a.ranks_per_thread},
            {"minimum_bytes", a.min_bytes},
            {"maximum_bytes", a.max_bytes}};
  if (factor)
    config["step_factor"] = a.step_factor;
  else
    config["step_bytes"] = a.step_bytes;
  config["warmup_iters"] = a.warmup;
  config["iterations"] = a.iterations;
  config["aggregated_iterations"] = a.aggregated;
  config["validation"] = a.checks;
  config["graph"] = a.graph_launches;
  config["blocking_collectives"] = truth(a.blocking);
  config["per_iter_timing"] = truth(a.per_iteration);
  config["per_iter_skip"] = a.per_iteration_skip;
  config["parallel_init"] = truth(a.parallel_init);
  config["devices"] = devices;
  json_["results"] = nlohmann::ordered_json::array();
  column_heads();
}

void Report::column_heads() {
  const char* time = args_.cpu_time ? "cputime" : "time";
  std::string names, units;
  for (int half = 0; half < 2; ++half) {
    names += fmt::format("  {:>7}  {:>6}  {:>6}  {:>6}", time, "algbw", "busbw", "#wrong");
    units += fmt::format("  {:>7}  {:>6}  {:>6}  {:>6}", "(us)", "(GB/s)", "(GB/s)", "");
    if (args_.per_iteration) {
      names += fmt::format("  {:>7}  {:>7}  {:>7}  {:>7}", "i_min", "i_max", "i_p99", "i_cv%");
      units += fmt::format("  {:>7}  {:>7}  {:>7}  {:>7}", "(us)", "(us)", "(us)", "(%)");
    }
  }
  if (args_.timestamps) names += fmt::format("  {:>19}", "timestamp");
  const int half = static_cast<int>(33 + (args_.per_iteration ? 36 : 0));
  fmt::print("#\n# {:>52}{:^{}}{:^{}}\n", "", "out-of-place", half, "in-place", half);
  fmt::print("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}{}\n", "size", "count", "type", "redop", "root", names);
  fmt::print("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}{}\n", "(B)", "(elements)", "", "", "", units);
  std::fflush(stdout);
}

void Report::row(const Row& row) {
  std::string text = table_row(row, args_.per_iteration, args_.per_iteration_skip);
  if (args_.timestamps) text += fmt::format("  {:>19}", now());
  fmt::print("{}\n", text);
  for (size_t begin = 0; begin < row.plan.size();) {
    const size_t end = std::min(row.plan.find('\n', begin), row.plan.size());
    fmt::print("#   {}\n", row.plan.substr(begin, end - begin));
    begin = end + 1;
  }
  fmt::print("{}", row.summary);
  std::fflush(stdout);
  const auto closeness = [](const Row& r) { return r.roof_seconds / r.out_of_place.seconds; };
  if (row.roof_seconds > 0 && row.out_of_place.seconds > 0 && (!best_ || closeness(row) > closeness(*best_)))
    best_ = row;

  nlohmann::ordered_json j = {{"size", row.bytes},
                              {"count", row.count},
                              {"type", row.type},
                              {"redop", row.op},
                              {"root", std::to_string(row.root)}};
  j["out_of_place"] = json_of(row.out_of_place, args_.cpu_time);
  if (args_.per_iteration)
    j["out_of_place_per_iter"] = json_of_iterations(row.out_of_place, args_.per_iteration_skip);
  j["in_place"] = json_of(row.in_place, args_.cpu_time);
  if (args_.per_iteration)
    j["in_place_per_iter"] = json_of_iterations(row.in_place, args_.per_iteration_skip);
  j["actual_iterations"] = args_.iterations;
  j["experiment_name"] = program_;
  if (!row.plan.empty()) j["plan"] = row.plan;
  if (row.roof_seconds > 0)
    j["roof"] = {{"time", row.roof_seconds * 1e6},
                 {"alg_bw", row.roof.algorithm},
                 {"bus_bw", row.roof.bus},
                 {"read_bytes", row.least.read},
                 {"written_bytes", row.least.written}};
  json_["results"].push_back(std::move(j));
}

void Report::memory(const std::string& line) {
  fmt::print("# {:<20} : {}\n", "Host memory usage", line);
  json_["host_memory_usage"] = line;
}

void Report::skipped(const std::string& why) {
  fmt::print("# Nothing is measured: {}\n", why);
  json_["skipped"] = why;
}

void Report::footer(const Totals& totals, double minimum_bandwidth) {
  const bool checked = minimum_bandwidth >= 0, fast = totals.fast(minimum_bandwidth);
  fmt::print("# {:<20} : {} {}\n", "Out of bounds values", totals.wrong, totals.wrong ? "FAILED" : "OK");
  fmt::print("# {:<20} : {:g} {}\n", "Avg bus bandwidth", totals.average(),
             !checked ? ""
             : fast   ? "OK"
                      : "FAILED");
  if (best_) fmt::print("{}\n", roof_line(*best_, program_.substr(0, program_.rfind("_perf")), job_.nranks));
  fmt::print("#\n# Collective test concluded: {}\n#\n", program_);
  std::fflush(stdout);
  json_["out_of_bounds"] = {{"count", totals.wrong}, {"okay", truth(totals.wrong == 0)}};
  json_["average_bus_bandwidth"] = {{"bandwidth", totals.average()},
                                    {"okay", checked ? truth(fast) : "unchecked"}};
  json_["errors"] = nlohmann::ordered_json::array();
}

}  // namespace muster::perf
