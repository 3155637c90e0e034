#include "perf/pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <sstream>
#include <string_view>

namespace muster::perf {
namespace {

constexpr size_t round_down(double bytes) { return static_cast<size_t>(bytes) / 16 * 16; }
constexpr double kMost = 0x1p44;  // bytes of one message: sums over any number of ranks stay within size_t

[[noreturn]] void refuse(const std::string& why) { throw Error(Result::invalid_usage, why); }

bool parse_number(std::string_view text, double& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && std::isfinite(value);
}

double number_of(const char* name, double otherwise, double most) {
  const char* text = std::getenv(name);
  if (!text || !*text) return otherwise;
  double value = 0;
  if (!parse_number(text, value) || value < 0 || value > most)
    refuse(fmt::format("{}='{}' can't be used: a number of 0 to {:g} is wanted", name, text, most));
  return value;
}

std::vector<std::vector<size_t>> read_matrix(const std::string& file, double scale) {
  std::ifstream in(file);
  if (!in) refuse(fmt::format("NCCL_TESTS_ALLTOALLV_MATRIX_FILE='{}' can't be opened", file));
  std::vector<std::vector<size_t>> matrix;
  size_t line_number = 0;
  for (std::string line; std::getline(in, line);) {
    ++line_number;
    std::istringstream words(line);
    std::vector<size_t> row;
    for (std::string word; words >> word;) {
      double bytes = 0;
      if (!parse_number(word, bytes) || bytes < 0 || bytes * scale > kMost)
        refuse(fmt::format("{}, line {}: '{}' is no number of bytes", file, line_number, word));
      row.push_back(round_down(bytes * scale));
    }
    if (row.empty()) continue;
    if (!matrix.empty() && row.size() != matrix[0].size())
      refuse(fmt::format("{}, line {}: {} numbers, but {} in the first row", file, line_number, row.size(),
                         matrix[0].size()));
    matrix.push_back(std::move(row));
  }
  if (in.bad() || matrix.empty()) refuse(fmt::format("{}: no matrix could be read from it", file));
  if (matrix.size() != matrix[0].size())
    refuse(fmt::format("{}: {} rows of {} numbers; as many rows as columns are wanted", file, matrix.size(),
                       matrix[0].size()));
  return matrix;
}

}  // namespace

Pattern Pattern::from_environment() {
  Pattern p;
  p.spread_ = number_of("NCCL_TESTS_ALLTOALLV_SPREAD", 1, 1);
  p.scale_ = number_of("NCCL_TESTS_ALLTOALLV_MATRIX_SCALE", 1, 1e12);
  p.print_summary_ = number_of("NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY", 0, 1) != 0;
  if (const char* file = std::getenv("NCCL_TESTS_ALLTOALLV_MATRIX_FILE"); file && *file) {
    p.file_ = file;
    p.matrix_ = read_matrix(p.file_, p.scale_);
  }
  return p;
}

void Pattern::check(const Args& args, int nranks) const {
  if (!has_matrix()) return;
  if (matrix_.size() < static_cast<size_t>(nranks))
    refuse(fmt::format("{} has {} rows, too few for {} ranks", file_, matrix_.size(), nranks));
  if (args.min_bytes != args.max_bytes)
    refuse(fmt::format(
        "the matrix in {} says what is sent: there is one size, but -b is {} and -e {}. Give both the "
        "same",
        file_, args.min_bytes, args.max_bytes));
  if (const size_t needed = largest(nranks, 0); args.max_bytes < needed)
    refuse(fmt::format(
        "with the matrix in {} a rank sends or receives {} bytes, more than -e {}. Raise -b and -e", file_,
        needed, args.max_bytes));
}

size_t Pattern::bytes(int from, int to, int nranks, size_t total) const {
  if (has_matrix()) return matrix_[static_cast<size_t>(from)][static_cast<size_t>(to)];
  if (nranks == 1) return round_down(static_cast<double>(total));
  const double n = nranks, all = static_cast<double>(total), distance = (to - from + nranks) % nranks;
  const double distances = n * (n - 1) / 2;
  return round_down((1 - spread_) * all / n + spread_ * all * distance / distances);
}

size_t Pattern::sent_by(int rank, int nranks, size_t total) const {
  size_t sum = 0;
  for (int peer = 0; peer < nranks; ++peer) sum += bytes(rank, peer, nranks, total);
  return sum;
}

size_t Pattern::received_by(int rank, int nranks, size_t total) const {
  size_t sum = 0;
  for (int peer = 0; peer < nranks; ++peer) sum += bytes(peer, rank, nranks, total);
  return sum;
}

size_t Pattern::largest(int nranks, size_t total) const {
  if (!has_matrix()) return sent_by(0, nranks, total);  // all send and receive the same
  size_t most = 0;
  for (int r = 0; r < nranks; ++r)
    most = std::max({most, sent_by(r, nranks, total), received_by(r, nranks, total)});
  return most;
}

Layout Pattern::layout(size_t bytes_of_row, size_t element, int rank, int nranks) const {
  Layout l;
  l.count = has_matrix() ? 0 : share(bytes_of_row, element, nranks);
  const size_t total = l.count * static_cast<size_t>(nranks) * element;
  for (int peer = 0; peer < nranks; ++peer) {
    l.sends.push_back(bytes(rank, peer, nranks, total) / element);
    l.recvs.push_back(bytes(peer, rank, nranks, total) / element);
    size_t before = 0;  // what the peer sends to the ranks before this one
    for (int r = 0; r < rank; ++r) before += bytes(peer, r, nranks, total) / element;
    l.origins.push_back(before);
  }
  l.send = l.recv = l.in_place_recv = largest(nranks, total) / element;
  return l;
}

Contents Pattern::sent(const Layout& l, const Place& p) const {
  const size_t used = std::accumulate(l.sends.begin(), l.sends.end(), size_t{0});
  return {{.source = p.rank, .count = used}, {.source = Content::kUntouched, .count = l.send - used}};
}

Contents Pattern::expected(const Layout& l, const Place&) const {
  Contents contents;
  for (size_t peer = 0; peer < l.recvs.size(); ++peer)
    contents.push_back({.source = static_cast<int>(peer), .first = l.origins[peer], .count = l.recvs[peer]});
  const size_t used = std::accumulate(l.recvs.begin(), l.recvs.end(), size_t{0});
  contents.push_back({.source = Content::kUntouched, .count = l.recv - used});
  return contents;
}

// In the words of nccl-tests: scripts read it.
std::string Pattern::summary(size_t bytes_of_row, size_t element, int nranks, double seconds) const {
  if (!print_summary_ || !(seconds > 0)) return {};
  const size_t total =
      has_matrix() ? 0 : share(bytes_of_row, element, nranks) * static_cast<size_t>(nranks) * element;
  std::string text = has_matrix() ? fmt::format(
                                        "# NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY: mode=matrix nranks={} "
                                        "matrix_dim={} scale={:.3f} time_usec={:.2f}\n",
                                        nranks, matrix_.size(), scale_, seconds * 1e6)
                                  : fmt::format(
                                        "# NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY: mode=generated nranks={} "
                                        "total_bytes={} spread={:.3f} time_usec={:.2f}\n",
                                        nranks, total, spread_, seconds * 1e6);
  for (int r = 0; r < nranks; ++r) {
    const size_t sent = sent_by(r, nranks, total), received = received_by(r, nranks, total);
    const Bandwidth b = bandwidth(Traffic::share, std::max(sent, received), seconds, nranks);
    text += fmt::format("#   rank={} send_bytes={} recv_bytes={} alg_bw={:.2f} bus_bw={:.2f}\n", r, sent,
                        received, b.algorithm, b.bus);
  }
  return text;
}

}  // namespace muster::perf
