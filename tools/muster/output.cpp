#include "output.h"

#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/error.h"

namespace muster::tool {
namespace {
constexpr size_t kLongestLine = 1 << 20;  // longer ones are printed in pieces of this size
constexpr size_t kMostRead = 1 << 20;     // of one rank at a time, so that all get their turn; a pipe's most
constexpr size_t kMostQueued = 4 << 20;   // beyond it the ranks wait for the reader of our output
}  // namespace

Fd PrefixedOutput::open(int rank, int target) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    fail_errno(errno, "can't make a pipe", "Raise the limit of open files (ulimit -n)");
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  sources_.push_back({Fd(ends[0]), target, fmt::format("[{}] ", rank), {}});
  return Fd(ends[1]);
}

void PrefixedOutput::add_to(std::vector<pollfd>& fds) const {
  if (queued_bytes_ < kMostQueued)
    for (const Source& s : sources_)
      if (s.fd) fds.push_back({s.fd.get(), POLLIN, 0});
  if (writing()) fds.push_back({queue_.front().target, POLLOUT, 0});
}

void PrefixedOutput::handle(const std::vector<pollfd>& fds) {
  for (const pollfd& p : fds) {
    if (!p.revents) continue;
    if (p.events == POLLOUT && writing() && p.fd == queue_.front().target) write_some();
    for (Source& s : sources_)
      if (p.events == POLLIN && p.fd == s.fd.get()) read_from(s, kMostRead);
  }
}

bool PrefixedOutput::reading() const {
  return std::any_of(sources_.begin(), sources_.end(),
                     [](const Source& s) { return static_cast<bool>(s.fd); });
}

void PrefixedOutput::finish() {
  for (Source& s : sources_) {
    if (s.fd) read_from(s, kMostRead);
    if (s.fd) end(s);
  }
}

// Until nothing is there to read, or a bit more than `most` bytes were.
void PrefixedOutput::read_from(Source& source, size_t most) {
  char buffer[65536];
  for (size_t total = 0; total < most;) {
    const ssize_t n = read(source.fd.get(), buffer, sizeof buffer);
    if (n > 0) {
      take(source, {buffer, static_cast<size_t>(n)});
      total += static_cast<size_t>(n);
    } else if (n < 0 && errno == EINTR) {
      continue;
    } else {
      if (n == 0 || errno != EAGAIN) end(source);
      return;
    }
  }
}

void PrefixedOutput::take(Source& source, std::string_view bytes) {
  source.partial += bytes;
  std::string lines;
  size_t begin = 0;
  for (size_t newline; (newline = source.partial.find('\n', begin)) != std::string::npos; begin = newline + 1)
    lines += source.prefix + source.partial.substr(begin, newline + 1 - begin);
  source.partial.erase(0, begin);
  if (source.partial.size() > kLongestLine) {
    lines += source.prefix + source.partial + "\n";
    source.partial.clear();
  }
  if (lines.empty()) return;
  queued_bytes_ += lines.size();
  queue_.push_back({source.target, std::move(lines)});
}

void PrefixedOutput::end(Source& source) {
  source.fd.reset();
  if (!source.partial.empty()) take(source, "\n");
}

// Writes only what a pipe takes without blocking once poll has said that it is writable: signals stay served.
void PrefixedOutput::write_some() {
  Text& text = queue_.front();
  const size_t most = std::min<size_t>(text.bytes.size() - text.written, PIPE_BUF);
  const ssize_t n = write(text.target, text.bytes.data() + text.written, most);
  if (n > 0) {
    text.written += static_cast<size_t>(n);
  } else if (errno != EINTR && errno != EAGAIN) {
    // Nobody reads any more: the ranks are told so by their own next write to that stream.
    const int target = text.target;
    for (Source& s : sources_)
      if (s.target == target) s.fd.reset();
    std::erase_if(queue_, [&](const Text& t) { return t.target == target; });
    queued_bytes_ = 0;
    for (const Text& t : queue_) queued_bytes_ += t.bytes.size();
    return;
  }
  if (text.written == text.bytes.size()) {
    queued_bytes_ -= text.bytes.size();
    queue_.pop_front();
  }
}

}  // namespace muster::tool
