// What the verbs transport moves beside what perftest's ib_write_bw does on the same two devices. Printed,
// not judged: emulated processors are slow and share their host.
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <regex>
#include <thread>
#include <vector>

#include "muster/muster.h"
#include "support/shell.h"
#include "support/verbs_pair.h"

namespace muster::verbs {
namespace {

using test::output_of;
using test::VerbsPair;

constexpr size_t kBytes = 128 << 10;
constexpr uint64_t kMessages = 100, kRounds = 5;  // the median of the rounds' ratios counts: the host is shared

// As ranks wait: they look some times and then sleep. An emulated network has no processors but theirs.
void look(VerbsNetwork& network, uint64_t communicator) {
  for (int i = 0; i < 20; ++i)
    if (network.progress(communicator)) return;
  if (!network.arm()) return;
  pollfd watched{network.event_fd(), POLLIN, 0};
  poll(&watched, 1, 10);
}

// MB/s of messages of kBytes that lie in `memory`, one way.
double stream(VerbsPair& p, uint64_t communicator, const std::byte* memory) {
  Doorbell bells[2] = {};
  SlotSender& out = p.a.sender({communicator, 1, 0, kBytes}, &bells[0]);
  SlotReceiver& in = p.b.receiver({communicator, 0, 0, kBytes}, &bells[1]);
  std::chrono::steady_clock::time_point begin;
  std::string error;
  std::thread receiver([&] {
    error = test::outcome_of([&] {
              for (uint64_t n = 0; n < kMessages;) {
                look(p.b, communicator);
                for (; n < kMessages && in.ready(); ++n) {
                  in.peek(kBytes);
                  in.release();
                  if (n == 0) begin = std::chrono::steady_clock::now();
                }
              }
            }).text;
  });
  const std::string sending = test::outcome_of([&] {
                                for (uint64_t n = 0; n < kMessages;) {
                                  look(p.a, communicator);
                                  for (; n < kMessages && out.ready(); ++n) {
                                    out.acquire(kBytes);
                                    out.send_from(memory + n % 4 * kBytes);
                                    out.commit(1, false);
                                  }
                                }
                                while (out.sent() < kMessages) look(p.a, communicator);
                              }).text;
  receiver.join();
  EXPECT_EQ(error + sending, "");
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  p.a.close(communicator);
  p.b.close(communicator);
  return static_cast<double>((kMessages - 1) * kBytes) / seconds / 1e6;
}

// Of 256 KiB, which are two messages.
double ib_write_bw() {
  const std::string common = fmt::format("ib_write_bw -F -s {} -n {} ", 2 * kBytes, kMessages / 2);
  const auto o = output_of(common +
                           "-d rxe0 -x $(roce-gid 0) >/dev/null 2>&1 & "
                           "until grep -qi ':4853 00000000:0000 0A' /proc/net/tcp; do sleep 0.05; done; " +
                           common + "-d rxe1 -x $(roce-gid 1) 127.0.0.1 2>&1; wait");
  std::smatch m;  // bytes, iterations, peak, average in MB/s (of 2^20)
  if (!std::regex_search(o.text, m, std::regex(R"(262144\s+\d+\s+[\d.]+\s+([\d.]+))"))) {
    ADD_FAILURE() << o.text;
    return 0;
  }
  return std::stod(m[1]) * 1.048576;
}

double median(std::vector<double> v) {
  std::ranges::nth_element(v, v.begin() + static_cast<long>(v.size() / 2));
  return v[v.size() / 2];
}

TEST(VerbsBandwidth, BesideIbWriteBw) {
  VerbsPair p("rxe0", "rxe1", "1", std::nullopt);
  std::vector<std::byte> any(4 * kBytes, std::byte{1});
  auto* const lasting = static_cast<std::byte*>(mem_alloc(4 * kBytes));
  std::fill_n(lasting, 4 * kBytes, std::byte{1});
  std::vector<double> copied, in_place, theirs, ratios;
  for (uint64_t i = 0; i < kRounds; ++i) {
    copied.push_back(stream(p, 10 + 2 * i, any.data()));
    theirs.push_back(ib_write_bw());
    in_place.push_back(stream(p, 11 + 2 * i, lasting));
    ratios.push_back(in_place.back() / theirs.back());
  }
  EXPECT_EQ(p.a.sent_in_place(), kRounds * kMessages);
  fmt::print("[ NUMBERS  ] verbs {:.0f} MB/s of memory that is copied, {:.0f} in place; ib_write_bw {:.0f} MB/s; {:.0f} % ({:.0f} to {:.0f})\n",
             median(copied), median(in_place), median(theirs), 100 * median(ratios), 100 * std::ranges::min(ratios), 100 * std::ranges::max(ratios));
  mem_free(lasting);
}

}  // namespace
}  // namespace muster::verbs
