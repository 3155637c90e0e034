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
  std::string plan;  // "" without --plan
};

// Used by one thread of one process.
class Report {
 public:
  Report(const Args& args, const Job& job, const std::string& program, int argc, char** argv);
  ~Report();  // ends the JSON file also where a failure cut the run short

  void header(size_t buffer_bytes);
  void row(const Row& row);
  void memory(const std::string& line);
  // minimum_bandwidth < 0: not checked. Returns success or wrong_data.
  Exit footer(double minimum_bandwidth);

 private:
  void column_heads();
  void open_json(int argc, char** argv);

  const Args& args_;
  const Job& job_;
  const std::string program_;
  std::FILE* json_file_ = nullptr;
  nlohmann::ordered_json json_;
  size_t wrong_ = 0;
  double bandwidths_ = 0;  // sum over
  size_t measurements_ = 0;
};

// FILE, or the first of FILE.0, FILE.1, ... that doesn't exist, newly created. Throws system_error.
std::FILE* create_new_file(const std::string& path, std::string& created);

// One row of the table, without the end of line.
std::string table_row(const Row& row, bool per_iteration);

}  // namespace muster::perf
