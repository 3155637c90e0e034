// Numbers, sizes, formulas and rows of the *_perf programs.
#include "perf/format.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>

#include "perf/report.h"
#include "perf/split.h"
#include "perf/sweep.h"

namespace muster::perf {
namespace {

TEST(PerfFormat, FixedWidth) {
  EXPECT_EQ(fixed_width(0, 7), "   0.00");
  EXPECT_EQ(fixed_width(0.004, 7), "   0.00");
  EXPECT_EQ(fixed_width(14.39, 7), "  14.39");
  EXPECT_EQ(fixed_width(1792.43, 7), "1792.43");
  EXPECT_EQ(fixed_width(13606.8, 7), "13606.8");
  EXPECT_EQ(fixed_width(108236.4, 7), " 108236");
  EXPECT_EQ(fixed_width(1234567.8, 7), "1234568");
  EXPECT_EQ(fixed_width(12345678, 7), "1.2e+07");
  EXPECT_EQ(fixed_width(479.9, 6), "479.90");
  EXPECT_EQ(fixed_width(1816.16, 6), "1816.2");
  EXPECT_EQ(fixed_width(99999.9, 6), "100000");
  EXPECT_EQ(fixed_width(12345678, 6), " 1e+07");
  // Rounding that needs a digit more.
  EXPECT_EQ(fixed_width(999.999, 6), "1000.0");
  EXPECT_EQ(fixed_width(9999.999, 7), "10000.0");
  for (double x = 1e-3; x < 1e12; x *= 1.37)
    for (const int width : {6, 7}) EXPECT_EQ(fixed_width(x, width).size(), static_cast<size_t>(width)) << x;
}

TEST(PerfFormat, Sizes) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(1536), "1.50 KB");
  EXPECT_EQ(human_bytes(64 << 20), "64.0 MB");
}

TEST(PerfFormat, StepsEnd) {
  EXPECT_EQ(next_size(8, 0, 2), 16u);
  EXPECT_EQ(next_size(0, 0, 2), 8u);
  EXPECT_EQ(next_size(5, 3, 1), 8u);
  EXPECT_EQ(next_size(SIZE_MAX - 1, 3, 1), SIZE_MAX);
  EXPECT_EQ(next_size(SIZE_MAX / 2 + 1, 0, 2), SIZE_MAX);
}

TEST(PerfFormat, Bandwidths) {
  // 12000 bytes in 1 us: 12 GB/s.
  const auto check = [](Traffic t, int n, double algorithm, double bus) {
    const Bandwidth b = bandwidth(t, 12000, 1e-6, n);
    EXPECT_NEAR(b.algorithm, algorithm, 1e-9) << n;
    EXPECT_NEAR(b.bus, bus, 1e-9) << n;
  };
  check(Traffic::all_reduce, 1, 12, 0);
  check(Traffic::all_reduce, 2, 12, 12);
  check(Traffic::all_reduce, 3, 12, 16);
  check(Traffic::all_reduce, 8, 12, 21);
  check(Traffic::share, 1, 12, 0);
  check(Traffic::share, 2, 12, 6);
  check(Traffic::share, 3, 12, 8);
  check(Traffic::share, 8, 12, 10.5);
  check(Traffic::whole, 1, 12, 12);
  check(Traffic::whole, 8, 12, 12);
  check(Traffic::hypercube, 1, 0, 0);
  check(Traffic::hypercube, 2, 6, 6);
  check(Traffic::hypercube, 8, 10.5, 10.5);
  EXPECT_EQ(bandwidth(Traffic::whole, 1000, 0, 2).bus, 0) << "nothing was measured";
}

TEST(PerfFormat, RoofInWords) {
  Row row;
  row.bytes = 8 << 20;
  row.out_of_place.seconds = 4e-3;
  row.out_of_place.bandwidth = {2, 2};
  row.least = {16 << 20, 16 << 20};
  row.roof_seconds = 1e-3;
  row.roof = {8, 8};
  EXPECT_EQ(roof_line(row, "all_reduce", 2),
            "# Roof: best at 8388608 B: busbw 2.00 of 8.00 GB/s, 25 % of what memory allows here. all_reduce "
            "of 2 ranks "
            "must read 16.0 MB and write 16.0 MB; all ranks at once copy 33.6 GB/s");
  row.roof_seconds = 8e-3;
  row.out_of_place.bandwidth.bus = 0;
  const std::string line = roof_line(row, "all_reduce", 1);
  EXPECT_NE(line.find("algbw 2.00 of 8.00 GB/s, 200 %"), line.npos) << line;
  EXPECT_NE(line.find("caches hold part of the data"), line.npos) << line;
}

TEST(PerfFormat, Statistics) {
  std::vector<double> samples;
  for (int i = 100; i >= 1; --i) samples.push_back(i);
  const Statistics s = statistics(samples);
  EXPECT_EQ(s.min, 1);
  EXPECT_EQ(s.max, 100);
  EXPECT_NEAR(s.mean, 50.5, 1e-9);
  EXPECT_EQ(s.p50, 50);
  EXPECT_EQ(s.p95, 95);
  EXPECT_EQ(s.p99, 99);
  EXPECT_NEAR(s.deviation, 28.866, 1e-3);
  EXPECT_EQ(statistics({}).max, 0);
  EXPECT_EQ(statistics({3}).p99, 3);
}

TEST(PerfFormat, RowsHaveTheColumnsOfNcclTests) {
  Row row;
  row.bytes = 8;
  row.count = 2;
  row.type = "float";
  row.op = "sum";
  row.out_of_place = {.seconds = 14.39e-6, .bandwidth = {}, .wrong = 0, .each_iteration = {}};
  row.in_place = {.seconds = 14.29e-6, .bandwidth = {12.5, 11.2}, .wrong = {}, .each_iteration = {}};
  EXPECT_EQ(table_row(row, false),
            "           8             2     float     sum      -1    14.39    0.00    0.00       0    14.29  "
            " 12.50   11.20     N/A");
}

TEST(PerfFormat, SplitColors) {
  EXPECT_EQ(split_color(5, nullptr, nullptr), 0);
  EXPECT_EQ(split_color(5, "", ""), 0);
  EXPECT_EQ(split_color(5, "MOD 2", nullptr), 1);
  EXPECT_EQ(split_color(5, "%4", nullptr), 1);
  EXPECT_EQ(split_color(5, "DIV 2", nullptr), 2);
  EXPECT_EQ(split_color(5, "/4", nullptr), 1);
  EXPECT_EQ(split_color(5, "and 0x3", nullptr), 1);
  EXPECT_EQ(split_color(5, "|2", nullptr), 7);
  EXPECT_EQ(split_color(5, "OR 0b10", nullptr), 7);
  EXPECT_EQ(split_color(29, nullptr, "18"), 24) << "hexadecimal";
  for (const char* bad : {"MOD", "MOD 0", "/0", "XOR 1", "2", "MOD -1", "MOD 2x", "MOD 0b2"})
    EXPECT_THROW(split_color(1, bad, nullptr), Error) << bad;
  EXPECT_THROW(split_color(1, nullptr, "g"), Error);
}

TEST(PerfFormat, FilesAreNeverOverwritten) {
  const std::string path = testing::TempDir() + "/perf_" + std::to_string(getpid()) + ".json";
  std::string created;
  std::vector<std::string> names;
  for (int i = 0; i < 3; ++i) {
    std::fclose(create_new_file(path, created));
    names.push_back(created);
  }
  EXPECT_EQ(names, (std::vector<std::string>{path, path + ".0", path + ".1"}));
  for (const std::string& name : names) std::remove(name.c_str());
  EXPECT_THROW(create_new_file("/no/such/folder/x", created), Error);
}

TEST(PerfArgs, DefaultsAndMistakes) {
  const auto parse = [](std::vector<std::string> words) {
    words.insert(words.begin(), "all_reduce_perf");
    std::vector<char*> argv;
    for (std::string& w : words) argv.push_back(w.data());
    argv.push_back(nullptr);
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const Parsed p = parse_args(static_cast<int>(words.size()), argv.data(), true, false);
    testing::internal::GetCapturedStdout();
    const std::string mistake = testing::internal::GetCapturedStderr();
    EXPECT_EQ(p.run || p.exit == Exit::success, mistake.empty() || p.exit == Exit::success) << mistake;
    return p;
  };
  const Args a = parse({}).args;
  EXPECT_EQ(a.min_bytes, size_t{32} << 20);
  EXPECT_EQ(a.max_bytes, size_t{32} << 20);
  EXPECT_EQ(a.step_bytes, size_t{1} << 20);
  EXPECT_EQ(a.iterations, 20);
  EXPECT_EQ(a.warmup, 1);
  EXPECT_EQ(a.checks, 1);
  EXPECT_EQ(a.average, Average::mean);
  EXPECT_EQ(a.types.front().type, DataType::float32);
  EXPECT_EQ(a.ops.front().op, RedOp::sum);
  const Args b = parse({"-b8", "--maxbytes", "128M", "-f", "2", "-g", "2", "-d", "all", "-o", "all", "-G",
                        "3", "--plan", "--buffers=malloc"})
                     .args;
  EXPECT_EQ(b.min_bytes, 8u);
  EXPECT_EQ(b.max_bytes, size_t{128} << 20);
  EXPECT_EQ(b.ranks_per_thread, 2);
  EXPECT_EQ(b.types.size(), static_cast<size_t>(kDataTypes));
  EXPECT_EQ(b.ops.size(), 6u);  // those of NCCL
  EXPECT_EQ(b.graph_launches, 3);
  EXPECT_EQ(b.notes.size(), 0u);
  EXPECT_TRUE(b.plan);
  EXPECT_EQ(b.memory, Memory::malloc);
  EXPECT_TRUE(b.roof);
  EXPECT_FALSE(b.rotate.has_value());
  EXPECT_EQ(b.registration, Registration::none);
  EXPECT_EQ(parse({"-R", "1"}).args.registration, Registration::local);
  EXPECT_EQ(parse({"--buffers", "gpu"}).args.memory, Memory::gpu);
  EXPECT_EQ(parse({}).args.memory, Memory::either);
  EXPECT_EQ(parse({"--local_register", "2"}).args.registration, Registration::windows);
  EXPECT_EQ(parse({"-R", "1", "-R", "0"}).args.registration, Registration::none);
  EXPECT_EQ(parse({"--rotate", "4M"}).args.rotate, size_t{4} << 20);
  EXPECT_FALSE(parse({"--roof", "0"}).args.roof);
  EXPECT_TRUE(parse({"--memory", "1"}).args.memory_report) << "nccl-tests' long name of -M";
  EXPECT_EQ(parse({"-I", "1", "--per_iter_skip", "3"}).args.per_iteration_skip, 3);
  for (const std::vector<std::string>& unused :
       {std::vector<std::string>{"-K", "3"}, {"-I", "1", "-K", "20"}}) {
    const Args k = parse(unused).args;
    EXPECT_EQ(k.per_iteration_skip, 0);
    EXPECT_EQ(k.notes.size(), 1u);
  }

  const auto status = [&](std::vector<std::string> words) {
    const Parsed p = parse(std::move(words));
    EXPECT_FALSE(p.run);
    return static_cast<int>(p.exit);
  };
  EXPECT_EQ(status({"-h"}), 0);
  EXPECT_EQ(status({"--no-such-flag"}), 0);
  EXPECT_EQ(status({"-b", "8X"}), 255);
  EXPECT_EQ(status({"-b", "2", "-e", "1"}), 255);
  EXPECT_EQ(status({"-b", "1", "-e", "2", "-i", "0"}), 255);
  EXPECT_EQ(status({"-g", "0"}), 6);
  EXPECT_EQ(status({"-n", "many"}), 6);
  EXPECT_EQ(status({"-d", "quad"}), 6);
  EXPECT_EQ(status({"-o", "xor"}), 6);
  EXPECT_EQ(status({"--roof", "2"}), 6);
  EXPECT_EQ(status({"--rotate", "much"}), 255);
  EXPECT_EQ(status({"stray"}), 6);
  EXPECT_EQ(status({"-R", "3"}), 6);
  EXPECT_EQ(status({"-D", "1"}), 5);
}

TEST(PerfArgs, WhatMeansNothingOnOneKindOfMemoryIsNoted) {
  Args all;
  all.graph_launches = 2;
  all.cta_policy = 1;
  all.cta_count = all.plan = all.per_iteration = true;
  all.blocking = 3;
  all.registration = Registration::local;
  Args host = all;
  set_memory(host, Memory::malloc);
  EXPECT_EQ(host.memory, Memory::malloc);
  EXPECT_EQ(host.notes.size(), 4u);  // -G, -x, -V, -R 1
  EXPECT_EQ(host.graph_launches, 0);
  EXPECT_TRUE(host.plan && host.per_iteration);
  EXPECT_EQ(host.blocking, 3);
  Args gpu = all;
  set_memory(gpu, Memory::gpu);
  EXPECT_EQ(gpu.notes.size(), 4u);  // -V, --plan, and with a graph -I, -z
  EXPECT_EQ(gpu.graph_launches, 2);
  EXPECT_FALSE(gpu.plan || gpu.per_iteration);
  EXPECT_EQ(gpu.blocking, 0);
  all.null_stream = true;
  EXPECT_THROW(set_memory(all, Memory::gpu), Error);
  Args none;
  set_memory(none, Memory::alloc);
  set_memory(none, Memory::gpu);
  EXPECT_TRUE(none.notes.empty());
}

}  // namespace
}  // namespace muster::perf
