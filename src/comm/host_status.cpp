#include "comm/host_status.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/most_ranks.h"
#include "base/text.h"
#include "comm/mismatch.h"
#include "comm/process_files.h"

namespace muster {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;
constexpr uint32_t kMostHere = 1 << 16;             // of them on one host
constexpr uint64_t kMostSegmentBytes = uint64_t{1} << 57;  // what the widest processors can address
constexpr double kSilentSeconds = 5;                // it is heard of once a second
constexpr double kWaitSeconds = 1;                  // a wait is told of every 20 ms
constexpr int kMostUnwritten = 1024;                // pages in a row that hold data, but no segment

// A segment as it was found.
struct Found {
  const HeldFile* file = nullptr;
  uint64_t offset = 0;
  uint32_t nranks = 0;
  CommunicatorStatus about;  // without its ranks
};

bool read_at(const Fd& fd, uint64_t offset, void* to, size_t bytes) {
  return pread(fd.get(), to, bytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes);
}

std::string of_process(const HeldFile& f) {
  return f.holders.empty() ? std::string("a process") : fmt::format("pid {}", f.holders[0].pid);
}

// Why a segment can't be read; empty: it can.
std::string trouble_with(const SegmentHead& h, uint64_t offset, uint64_t file_bytes) {
  if (h.magic != kSegmentMagic) return "its shared memory doesn't begin as Muster's does";
  if (h.layout != kLayout) {
    const size_t n = strnlen(h.version, sizeof h.version);
    return fmt::format(
        "it runs Muster {}, which lays its state out another way ({}, not {}). Use the `muster` command of "
        "that version",
        printable(std::string_view(h.version, n)), h.layout, kLayout);
  }
  const uint64_t needed = kControlsAt + h.nranks * sizeof(RankControl);
  if (h.head_bytes != sizeof(SegmentHead) || h.control_bytes != sizeof(RankControl) || h.nranks == 0 ||
      h.nranks > kMostHere || h.bytes < needed || h.bytes > kMostSegmentBytes || h.bytes % kSegmentPage != 0)
    return "its shared memory is damaged: the sizes in it can't be";
  // Only as much of it is in the file as has been used.
  if (needed > file_bytes - offset)
    return fmt::format("its shared memory is cut off: it ends at byte {}, and the ranks' state at {}",
                       file_bytes, offset + needed);
  return {};
}

void find_segments(const HeldFile& file, std::vector<Found>& segments, std::vector<std::string>& problems) {
  const auto complain = [&](const std::string& why) {
    problems.push_back(fmt::format("{}: {}", of_process(file), why));
  };
  struct stat st {};
  if (fstat(file.fd.get(), &st) != 0) return complain(describe_errno(errno));
  const auto file_bytes = static_cast<uint64_t>(st.st_size);
  int unwritten = 0;
  // Of segments that are no more only a hole is left, and the next one's first page is where data begins
  // again.
  for (uint64_t at = 0; at < file_bytes;) {
    const off_t data = lseek(file.fd.get(), static_cast<off_t>(at), SEEK_DATA);
    if (data < 0) {
      if (errno != ENXIO) complain(fmt::format("its shared memory can't be read: {}", describe_errno(errno)));
      return;
    }
    at = std::max(at, static_cast<uint64_t>(data) / kSegmentPage * kSegmentPage);
    SegmentHead h;
    if (file_bytes - at < sizeof h)
      return complain(fmt::format("its shared memory is cut off after {} bytes", file_bytes));
    if (!read_at(file.fd, at, &h, sizeof h)) return complain("its shared memory can't be read");
    if (h.magic == 0 && ++unwritten < kMostUnwritten) {  // one that is just being made, or going
      at += kSegmentPage;
      continue;
    }
    unwritten = 0;
    if (const std::string why = trouble_with(h, at, file_bytes); !why.empty()) return complain(why);
    if (h.id.load(relaxed) != 0) {
      Found f{&file, at, h.nranks, {}};
      f.about.id = h.id.load(relaxed);
      f.about.parent = h.parent;
      f.about.name = printable(std::string_view(h.name, strnlen(h.name, sizeof h.name)));
      if (h.size < h.nranks || h.size > static_cast<uint32_t>(kMostRanks))
        return complain(fmt::format(
            "its shared memory is damaged: {} ranks share that of a communicator of {}", h.nranks, h.size));
      f.about.size = static_cast<int>(h.size);
      segments.push_back(std::move(f));
    }
    at += h.bytes;
  }
}

using Controls = std::unique_ptr<RankControl[]>;
// Null: it is no more.
Controls read_controls(const Found& f) {
  Controls c(new RankControl[f.nranks]);
  if (!read_at(f.file->fd, f.offset + kControlsAt, c.get(), f.nranks * sizeof(RankControl))) return nullptr;
  return c;
}

// Two readings, made one after the other, of memory that may be written meanwhile.
struct Pair {
  const RankControl &a, &b;
  // What both agree on was not being written.
  std::optional<CallShape> shape_of_call(uint64_t number) const {
    const LedgerEntry &x = a.ledger[number % kLedgerEntries], &y = b.ledger[number % kLedgerEntries];
    const bool same = x.sequence.load(relaxed) == number && y.sequence.load(relaxed) == number &&
                      x.shape.load(relaxed) == y.shape.load(relaxed) &&
                      x.count.load(relaxed) == y.count.load(relaxed);
    return same ? std::optional(shape_of(x)) : std::nullopt;
  }
};

double seconds_between(int64_t from, int64_t to) {
  return std::max(0.0, (static_cast<double>(to) - static_cast<double>(from)) * 1e-9);
}

CallStatus call_status(const Pair& p, uint64_t number, uint64_t seen, int64_t seen_at, int64_t looked_at,
                       int64_t now) {
  CallStatus c;
  c.number = number;
  if (number == 0) return c;
  c.shape = p.shape_of_call(number);
  c.seconds_ago =
      seconds_between(number == seen ? seen_at : looked_at, now);  // else it was after the last look
  return c;
}

// Null: no process that holds the memory is this one.
const Holder* holder_of(const HeldFile& f, const RankControl& c) {
  const std::string start = std::to_string(c.start.load(relaxed));
  for (const Holder& h : f.holders)
    if (h.inner_pid == c.pid.load(relaxed) && h.status.start == start) return &h;
  return nullptr;
}

ProcessState state_of(const Holder* h, double silent_seconds) {
  if (!h) return ProcessState::gone;
  switch (read_process(h->pid).state) {
    case 'T':
      return ProcessState::stopped;
    case 't':
      return ProcessState::traced;
    case 0:
    case 'X':
    case 'Z':
      return ProcessState::gone;
    default:
      return silent_seconds > kSilentSeconds ? ProcessState::silent : ProcessState::running;
  }
}

RankStatus rank_status(const HeldFile& f, int size, const Pair& p, const RankControl& before, int64_t now) {
  const RankControl& c = p.b;
  RankStatus r;
  r.rank = c.rank.load(relaxed);
  const Holder* holder = holder_of(f, c);
  r.pid = holder ? holder->pid : c.pid.load(relaxed);
  r.left = c.left.load(relaxed) != 0;
  const RankTimes& t = c.times;
  const int64_t looked_at = t.seen_at.load(relaxed);
  r.process = state_of(holder, r.left ? 0 : seconds_between(looked_at, now));
  // `entered` lies before `finished` and may have been read before more calls were made.
  const uint64_t finished = c.finished.load(relaxed), entered = std::max(c.entered.load(relaxed), finished);
  r.moving =
      before.entered.load(relaxed) != c.entered.load(relaxed) || before.finished.load(relaxed) != finished;
  r.started = call_status(p, entered, t.entered.load(relaxed), t.entered_at.load(relaxed), looked_at, now);
  r.finished =
      call_status(p, finished, t.finished.load(relaxed), t.finished_at.load(relaxed), looked_at, now);

  const RankWait& w = c.wait;
  const uint32_t kind = w.kind.load(relaxed);
  const bool numbered = kind == RankWait::collective;
  const bool fresh = seconds_between(w.seen_at.load(relaxed), looked_at) < kWaitSeconds;
  if (kind > RankWait::none && kind <= RankWait::exchange && fresh && !(numbered && finished == entered) &&
      !r.left)
    r.wait = {static_cast<RankWait::Kind>(kind), std::clamp(w.peer.load(relaxed), -1, size - 1),
              seconds_between(w.since.load(relaxed), now)};
  return r;
}

// Nothing: it is no more, or none of its ranks is in it any more.
std::optional<CommunicatorStatus> status_of(const Found& f, const RankControl* before,
                                            std::vector<std::string>& problems) {
  const Controls a = read_controls(f), b = read_controls(f);
  if (!a || !b || !before) return {};
  const int64_t now = std::chrono::steady_clock::now().time_since_epoch().count();
  CommunicatorStatus s = f.about;
  std::set<int> ranks;
  for (uint32_t i = 0; i < f.nranks; ++i) {
    if (b[i].pid.load(relaxed) == 0) continue;
    const RankStatus r = rank_status(*f.file, s.size, {a[i], b[i]}, before[i], now);
    if (r.rank < 0 || r.rank >= s.size || !ranks.insert(r.rank).second) {
      problems.push_back(fmt::format(
          "{}: its shared memory is damaged: communicator {} has a second rank {}, or none of that number",
          of_process(*f.file), s.name, r.rank));
      return {};
    }
    s.ranks.push_back(r);
  }
  std::sort(s.ranks.begin(), s.ranks.end(),
            [](const RankStatus& x, const RankStatus& y) { return x.rank < y.rank; });
  if (std::none_of(s.ranks.begin(), s.ranks.end(),
                   [](const RankStatus& r) { return !r.left && r.process != ProcessState::gone; }))
    return {};
  for (int r = 0; r < s.size; ++r)
    if (!ranks.contains(r)) (f.nranks < static_cast<uint32_t>(s.size) ? s.elsewhere : s.joining).push_back(r);

  ErrorRecord e;
  if (read_at(f.file->fd, f.offset + kErrorAt, &e, sizeof e) && e.state.load(relaxed) == 2) {
    s.error = error_code(e.code);
    s.revoked = e.revoked != 0;
  }
  return s;
}

// Each behind its parent, and before that one's next child.
std::vector<CommunicatorStatus> in_order(std::vector<CommunicatorStatus> all) {
  std::set<uint64_t> ids;
  for (const auto& c : all) ids.insert(c.id);
  std::vector<CommunicatorStatus> sorted;
  const auto take = [&](const auto& self, uint64_t parent) -> void {
    for (size_t i = 0; i < all.size(); ++i) {
      const bool first = !ids.contains(all[i].parent) || all[i].parent == all[i].id;
      if (all[i].size == 0 || (parent ? first || all[i].parent != parent : !first)) continue;
      const uint64_t id = all[i].id;
      sorted.push_back(std::exchange(all[i], {}));
      self(self, id);
    }
  };
  take(take, 0);
  return sorted;
}

}  // namespace

std::string_view name_of(ProcessState s) {
  switch (s) {
    case ProcessState::running:
      return "running";
    case ProcessState::stopped:
      return "stopped";
    case ProcessState::traced:
      return "traced";
    case ProcessState::silent:
      return "silent";
    case ProcessState::gone:
      return "gone";
  }
  return "?";
}

HostStatus read_host_status(std::span<const int> pids, std::chrono::milliseconds apart) {
  HostStatus status;
  const std::vector<HeldFile> files = find_memory_files(kSegmentFile, pids, status.problems);
  std::vector<Found> segments;
  for (const HeldFile& f : files) find_segments(f, segments, status.problems);
  std::vector<Controls> before;
  for (const Found& f : segments) before.push_back(read_controls(f));
  if (!segments.empty()) std::this_thread::sleep_for(apart);
  for (size_t i = 0; i < segments.size(); ++i)
    if (auto s = status_of(segments[i], before[i].get(), status.problems))
      status.communicators.push_back(std::move(*s));
  status.communicators = in_order(std::move(status.communicators));
  return status;
}

}  // namespace muster
