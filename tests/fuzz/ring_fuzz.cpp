// What the neighbours on the ring and in the tree send: frames and messages. The input is a list of messages,
// each a byte that says from whom it comes and whether it is framed, a length, and its bytes.
#include <sys/socket.h>

#include <array>

#include "base/error.h"
#include "bootstrap/ring.h"
#include "bootstrap/socket.h"
#include "fuzz.h"

using namespace muster;
using namespace muster::fuzz;

namespace {

Deadline soon() { return Deadline::after(std::chrono::seconds(10)); }

// What the rank passes on, up to the end of its connection.
void drain(int fd, std::string& out) {
  char buffer[4096];
  for (ssize_t n = 0; (n = recv(fd, buffer, sizeof buffer, 0)) > 0;)
    out.append(buffer, static_cast<size_t>(n));
}

void require_frames(std::string_view stream) {
  Reader r(stream);
  while (r.ok() && !r.at_end()) r.raw(r.u32());
  require(r.ok(), "only whole messages are passed on");
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static auto* loop = new EventLoop;  // its thread has no end
  const auto ring = std::make_shared<Ring>(*loop, 1, 3);
  std::array<ProcessFd, 3> ends;
  for (const Side side : kSides) {
    int pair[2];
    require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0, "socketpair");
    ends[static_cast<size_t>(side)] = ProcessFd(pair[0]);
    ring->attach(side, ProcessFd(pair[1]));
  }
  int branch[2];
  require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, branch) == 0, "socketpair");
  ends[2] = ProcessFd(branch[0]);
  ring->attach_branch(0, ProcessFd(branch[1]));
  std::vector<Bootstrap::Trouble> reports;
  ring->watch([&](const Bootstrap::Trouble& t) { reports.push_back(t); });

  for (Input in(data, size); !in.empty();) {
    const uint8_t where = in.byte();
    const std::string_view message = in.bytes(in.byte());
    send_all(ends[where & 4 ? 2 : where & 1].get(), where & 2 ? std::string(message) : frame(message), soon());
  }
  std::array<std::string, 2> passed_on;
  for (const Side side : kSides) {
    shutdown(ends[static_cast<size_t>(side)].get(), SHUT_WR);
    drain(ends[static_cast<size_t>(side)].get(), passed_on[static_cast<size_t>(side)]);
    require_frames(passed_on[static_cast<size_t>(side)]);
  }
  ring->close(false);
  for (const Bootstrap::Trouble& t : reports) {
    require(t.code == error_code(static_cast<int>(t.code)), "a report has an error's code");
  }
  return 0;
}
