#include "perf/args.h"

#include <fmt/format.h>
#include <getopt.h>

#include <charconv>
#include <cstdio>

#include "base/size_text.h"
#include "perf/format.h"

namespace muster::perf {
namespace {

struct Flag {
  char letter;
  const char* name;
  const char* value;  // nullptr: takes none
  const char* help;
};

enum : char { kBuffers = 1, kRotate, kPlan, kRoof, kLastOwn = kRoof };  // Muster's own have no letter
constexpr bool has_letter(const Flag& f) { return f.letter > kLastOwn; }

constexpr Flag kFlags[] = {
    {'t', "nthreads", "NUM", "threads per process (default 1)"},
    {'g', "ngpus", "NUM", "GPUs per thread, a rank on each; on host memory ranks (default 1)"},
    {'b', "minbytes", "SIZE", "smallest size; K, M, G, T are binary (default 32M)"},
    {'e', "maxbytes", "SIZE", "largest size (default 32M)"},
    {'i', "stepbytes", "SIZE", "add this from size to size (default 1M)"},
    {'f', "stepfactor", "NUM", "multiply by this from size to size (from 0: 8)"},
    {'n', "iters", "NUM", "timed iterations (default 20)"},
    {'w', "warmup_iters", "NUM", "iterations before them, not timed (default 1)"},
    {'m', "agg_iters", "NUM", "calls per iteration, in one group (default 1)"},
    {'N', "run_cycles", "NUM", "times that the whole table is made; 0 = for ever (default 1)"},
    {'p', "parallel_init", "0/1", "threads make their communicators at the same time (default 0)"},
    {'c', "check", "NUM", "verified runs per row; 0 = none (default 1)"},
    {'o', "op", "OP", "sum, prod, min, max, avg, mulsum or all (default sum)"},
    {'d', "datatype", "TYPE",
     "int8 uint8 int32 uint32 int64 uint64 half float double bfloat16 f8e4m3 f8e5m2 or all (default float)"},
    {'r', "root", "NUM", "root rank; -1 = each in turn (default 0)"},
    {'z', "blocking", "0..3",
     "after each iteration 1, 3: complete and meet, which 3 doesn't time; 2: complete (default 0)"},
    {'y', "stream_null", "0/1", "1: ranks of one thread run in groups on it, not on streams (default 0)"},
    {'T', "timeout", "SECONDS", "most that one row may take; 0 = no limit (default 0)"},
    {'G', "cudagraph", "NUM",
     "GPUs: iterations become a graph, which is launched so many times; 0 = no graph (default 0)"},
    {'C', "report_cputime", "0/1", "report the time to issue the calls, not to complete them (default 0)"},
    {'S', "report_timestamps", "0/1", "end each row with the time of day (default 0)"},
    {'J', "output_file", "FILE",
     "write the results as JSON too; an existing file is kept and FILE.N is written"},
    {'a', "average", "0..3", "time of rank 0, or mean, min, max of all ranks (default 1 = mean)"},
    {'R', "local_register", "0..2",
     "register the buffers: 1 = for each rank's own use, which host memory doesn't need; 2 = as windows of "
     "all ranks (default 0)"},
    {'x', "cta_policy", "0..2", "GPUs: the communicators' CTA policy; on host memory noted"},
    {'D', "device_implementation", "NUM", "device kernels: only 0 is possible"},
    {'V', "device_cta_count", "NUM", "thread blocks of device kernels, which there are none of: noted"},
    {'M', "memory", "0/1", "print the memory used (default 0)"},
    {'u', "unalign", "NUM", "start the buffers so many elements off their alignment (default 0)"},
    {'I', "per_iter_timing", "0/1", "time each iteration, and show min, max, 99 % and variation (default 0)"},
    {'K', "per_iter_skip", "NUM", "leave the first iterations out of that (default 0)"},
    {'h', "help", nullptr, "this text"},
    {kBuffers, "buffers", "KIND",
     "Muster's own: gpu = GPU memory (default where there is a GPU), alloc = muster::mem_alloc (default "
     "where there "
     "is none), malloc = ordinary host memory"},
    {kRotate, "rotate", "SIZE",
     "Muster's own: calls step through buffers of this size; 0 = all use the same (default: that of the "
     "caches)"},
    {kPlan, "plan", nullptr, "Muster's own: print how each size was run, and why"},
    {kRoof, "roof", "0/1",
     "Muster's own: say how close the best result is to what memory allows, which is measured first (default "
     "1)"},
};

void print_usage(const char* program) {
  fmt::print("Usage: {} [FLAG...]\n", program);
  for (const Flag& f : kFlags) {
    const std::string letter = has_letter(f) ? fmt::format("-{},", f.letter) : "   ";
    fmt::print("  {} --{:<32} {}\n", letter, fmt::format("{} {}", f.name, f.value ? f.value : ""), f.help);
  }
}

class Parser {
 public:
  Parser(int argc, char** argv, bool reduces, bool rooted)
      : argc_(argc), argv_(argv), reduces_(reduces), rooted_(rooted) {
    for (const NamedType& t : types())
      if (t.type == DataType::float32) p_.args.types = {t};
    p_.args.ops = {ops()[0]};
  }

  Parsed parse() {
    std::string letters;
    std::vector<option> names;
    for (const Flag& f : kFlags) {
      if (has_letter(f)) letters += fmt::format("{}{}", f.letter, f.value ? ":" : "");
      names.push_back({f.name, f.value ? required_argument : no_argument, nullptr, f.letter});
    }
    names.push_back({});
    optind = 0;  // anew, also when called again
    for (int c; p_.run && (c = getopt_long(argc_, argv_, letters.c_str(), names.data(), nullptr)) != -1;) {
      if (c == '?' || c == 'h') {  // an unknown flag is no failure to nccl-tests either: scripts rely on it
        print_usage(argv_[0]);
        stop(Exit::success);
      } else {
        take(static_cast<char>(c), optarg ? optarg : "");
      }
    }
    if (p_.run && optind < argc_) stop(Exit::invalid_usage, fmt::format("'{}' is not a flag", argv_[optind]));
    if (p_.run) check_together();
    return p_;
  }

 private:
  void stop(Exit exit, const std::string& why = {}) {
    if (!why.empty()) fmt::print(stderr, "{}: {}\n", argv_[0], why);
    p_.run = false;
    p_.exit = exit;
  }

  int number(char letter, const std::string& text, int low, int high) {
    return number(std::string(1, letter), text, low, high);
  }
  int number(const std::string& flag, const std::string& text, int low, int high) {
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < low || value > high)
      stop(Exit::invalid_usage,
           fmt::format("-{} '{}': a whole number of {} to {} is wanted", flag, text, low, high));
    return value;
  }

  size_t size(char letter, const std::string& text) { return size(std::string(1, letter), text); }
  size_t size(const std::string& flag, const std::string& text) {
    const std::optional<uint64_t> bytes = parse_size(text);
    if (!bytes)
      stop(Exit::bad_size,
           fmt::format(
               "-{} '{}' is no size: a number of bytes is wanted, with K, M, G or T behind it if wished",
               flag, text));
    return bytes.value_or(0);
  }

  template <class Named>
  std::vector<Named> choose(char flag, const std::string& text, std::span<const Named> all) {
    if (text == "all") return {all.begin(), all.end()};
    std::string known;
    for (const Named& n : all) {
      if (text == n.name) return {n};
      known += std::string(" ") + n.name;
    }
    stop(Exit::invalid_usage, fmt::format("-{} '{}' is not known; there are:{} all", flag, text, known));
    return {};
  }

  void take(char flag, const std::string& value) {
    constexpr int kMany = 1 << 30;
    Args& a = p_.args;
    switch (flag) {
      case 't':
        a.threads = number(flag, value, 1, 4096);
        break;
      case 'g':
        a.ranks_per_thread = number(flag, value, 1, 4096);
        break;
      case 'b':
        a.min_bytes = size(flag, value);
        break;
      case 'e':
        a.max_bytes = size(flag, value);
        break;
      case 'i':
        a.step_bytes = size(flag, value);
        break;
      case 'f':
        a.step_factor = static_cast<size_t>(number(flag, value, 1, kMany));
        break;
      case 'n':
        a.iterations = number(flag, value, 0, kMany);
        break;
      case 'w':
        a.warmup = number(flag, value, 0, kMany);
        break;
      case 'm':
        a.aggregated = number(flag, value, 1, 1 << 20);
        break;
      case 'N':
        a.cycles = number(flag, value, 0, kMany);
        break;
      case 'p':
        a.parallel_init = number(flag, value, 0, 1);
        break;
      case 'c':
        a.checks = number(flag, value, 0, kMany);
        break;
      case 'o':
        a.ops = choose(flag, value, ops());
        if (!reduces_) note("-o: this collective does not reduce");
        break;
      case 'd':
        a.types = choose(flag, value, types());
        break;
      case 'r':
        a.root = number(flag, value, -1, kMany);
        if (!rooted_) note("-r: this collective has no root");
        break;
      case 'z':
        a.blocking = number(flag, value, 0, 3);
        break;
      case 'y':
        a.null_stream = number(flag, value, 0, 1);
        break;
      case 'T':
        a.timeout_seconds = number(flag, value, 0, kMany);
        break;
      case 'G':
        a.graph_launches = number(flag, value, 0, kMany);
        break;
      case 'C':
        a.cpu_time = number(flag, value, 0, 1);
        break;
      case 'S':
        a.timestamps = number(flag, value, 0, 1);
        break;
      case 'J':
        a.json_path = value;
        break;
      case 'a':
        a.average = static_cast<Average>(number(flag, value, 0, 3));
        break;
      case 'R':
        a.registration = static_cast<Registration>(number(flag, value, 0, 2));
        break;
      case 'D':
        if (number(flag, value, 0, kMany)) stop(Exit::not_implemented, "-D: there are no device kernels");
        break;
      case 'x':
        a.cta_policy = number(flag, value, 0, 2);
        break;
      case 'V':
        number(flag, value, 0, kMany);
        a.cta_count = true;
        break;
      case 'M':
        a.memory_report = number(flag, value, 0, 1);
        break;
      case 'u':
        a.unaligned = static_cast<size_t>(number(flag, value, 0, 1 << 20));
        break;
      case 'I':
        a.per_iteration = number(flag, value, 0, 1);
        break;
      case 'K':
        a.per_iteration_skip = number(flag, value, 0, kMany);
        break;
      case kBuffers:
        a.memory = memory(value);
        break;
      case kRotate:
        a.rotate = size("-rotate", value);
        break;
      case kPlan:
        a.plan = true;
        break;
      case kRoof:
        a.roof = number("-roof", value, 0, 1);
        break;
      default:
        stop(Exit::internal, "a flag without meaning");
        break;
    }
  }

  Memory memory(const std::string& text) {
    if (text == "gpu") return Memory::gpu;
    if (text == "alloc") return Memory::alloc;
    if (text != "malloc")
      stop(Exit::invalid_usage, fmt::format("--buffers '{}': gpu, alloc or malloc is wanted", text));
    return Memory::malloc;
  }

  void note(const std::string& text) { p_.args.notes.push_back(text); }

  void check_together() {
    Args& a = p_.args;
    if (a.min_bytes > a.max_bytes)
      stop(Exit::bad_size, fmt::format("-b {} is more than -e {}", a.min_bytes, a.max_bytes));
    else if (a.step_factor <= 1 && a.step_bytes == 0 && a.min_bytes != a.max_bytes)
      stop(Exit::bad_size, "-i 0 never leads from the smallest to the largest size");
    if (a.per_iteration_skip && (!a.per_iteration || a.per_iteration_skip >= a.iterations)) {
      note(a.per_iteration ? fmt::format("-K {} would leave nothing of {} iterations: none are left out",
                                         a.per_iteration_skip, a.iterations)
                           : "-K: only -I 1 shows what it is about");
      a.per_iteration_skip = 0;
    }
  }

  int argc_;
  char** argv_;
  bool reduces_, rooted_;
  Parsed p_;
};

}  // namespace

void set_memory(Args& args, Memory memory) {
  args.memory = memory;
  const auto note_if = [&](bool set, const char* text) {
    if (set) args.notes.emplace_back(text);
  };
  if (memory == Memory::gpu) {
    note_if(args.cta_count, "-V: there are no device kernels");
    note_if(args.plan, "--plan: it tells of host memory; MUSTER_EXPLAIN tells how calls on GPUs went");
    args.plan = false;
    if (args.graph_launches == 0) return;
    if (args.null_stream)
      throw Error(Result::invalid_usage, "-G and -y 1: what is on the default stream can't go into a graph");
    note_if(args.per_iteration, "-I: a graph's iterations aren't timed one by one");
    args.per_iteration = false;
    note_if(args.blocking != 0, "-z: a graph doesn't wait after each iteration");
    args.blocking = 0;
    return;
  }
  note_if(args.graph_launches != 0, "-G: there are no graphs on host memory; calls are made directly");
  args.graph_launches = 0;
  note_if(args.cta_policy.has_value(), "-x: there are no thread blocks on host memory");
  note_if(args.cta_count, "-V: there are no thread blocks on host memory");
  note_if(args.registration == Registration::local,
          "-R 1: host memory needs no registration for a rank's own use, so nothing is registered");
}

Parsed parse_args(int argc, char** argv, bool reduces, bool rooted) {
  return Parser(argc, argv, reduces, rooted).parse();
}

}  // namespace muster::perf
