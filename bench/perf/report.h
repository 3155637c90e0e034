// The results: the table on stdout, in nccl-tests' layout, and the JSON file, in its schema (version 3).
#pragma once

#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "perf/args.h"
#include "perf/format.h"
#include "perf/job.h"
#include "perf/roof.h"

namespace muster::perf {

struct Measurement {
  double seconds = 0;
  Bandwidth bandwidth;
  std::optional<size_t> wrong;         // none: not verified
  std::vector<double> each_iteration;  // seconds, the slowest rank's; empty without -I
};

struct Row {
  size_t bytes = 0, count = 0;
  const char* type = "";
  const char* op = "none";
  int root = -1;
  Measurement out_of_place, in_place;
  std::string plan;     // "" without --plan
  std::string summary;  // lines ready to print
  // What memory allows, out of place (roof.h); 0 where that isn't known.
  MemoryTraffic least;
  double roof_seconds = 0;
  Bandwidth roof;
};

// What all rows together came to; equal on all ranks.
struct Totals {
  size_t wrong = 0, measurements = 0;
  double bandwidths = 0;  // sum over

  void add(const Measurement& m) {
    wrong += m.wrong.value_or(0);
    bandwidths += m.bandwidth.bus;
    ++measurements;
  }
  double average() const { return measurements ? bandwidths / static_cast<double>(measurements) : 0; }
  // minimum_bandwidth < 0: not checked.
  bool fast(double minimum_bandwidth) const {
    return minimum_bandwidth < 0 || average() >= 0.9 * minimum_bandwidth;
  }
};

// "# Roof: ...": how close the row comes to what memory allows, in words.
std::string roof_line(const Row& row, const std::string& collective, int nranks);

// Used by one thread of one process.
class Report {
 public:
  Report(const Args& args, const Job& job, const std::string& program, int argc, char** argv);
  ~Report();  // ends the JSON file also where a failure cut the run short

  void header(size_t buffer_bytes);
  void row(const Row& row);
  void memory(const std::string& line);
  void skipped(const std::string& why);
  void footer(const Totals& totals, double minimum_bandwidth);

 private:
  void column_heads();
  void open_json(int argc, char** argv);

  const Args& args_;
  const Job& job_;
  const std::string program_;
  std::FILE* json_file_ = nullptr;
  nlohmann::ordered_json json_;
  std::optional<Row> best_;  // the row that comes closest to its roof
};

// FILE, or the first of FILE.0, FILE.1, ... that doesn't exist, newly created. Throws system_error.
std::FILE* create_new_file(const std::string& path, std::string& created);

// One row of the table, without the end of line. skipped: iterations that the per-iteration columns leave
// out.
std::string table_row(const Row& row, bool per_iteration, int skipped = 0);

}  // namespace muster::perf
