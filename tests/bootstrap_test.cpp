// Ranks as threads of this process: meeting, exchanges, descriptors, ids.
#include "bootstrap/bootstrap.h"

#include <gmock/gmock.h>
#include <sys/mman.h>

#include <atomic>
#include <cstring>

#include "bootstrap/handshake.h"
#include "bootstrap/service.h"
#include "bootstrap/unique_id.h"
#include "bootstrap_support.h"

namespace muster {
namespace {

using namespace test;  // NOLINT
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;

Options options() { return Options::from_environment(); }

TEST(Bootstrap, RanksMeetAndExchangeTextsOfAnyLength) {
  for (const int n : {2, 3, 4, 7}) {
    const Ranks ranks = connect_all(n);
    const auto text = [](int r, int round) {
      return std::string(static_cast<size_t>(r * r * 7001 * round), static_cast<char>('a' + r));
    };
    for (const Failure& f : in_threads(n, [&](int r) {
           Bootstrap& b = *ranks[static_cast<size_t>(r)];
           EXPECT_EQ(b.rank(), r);
           EXPECT_EQ(b.size(), n);
           ASSERT_EQ(b.peers().size(), static_cast<size_t>(n));
           for (const auto& p : b.peers()) EXPECT_EQ(p.pid, getpid());
           EXPECT_EQ(b.communicator_id(), ranks[0]->communicator_id());
           for (int round = 0; round < 5; ++round) {
             const auto all = b.all_gather(text(r, round), in_seconds(30));
             for (int k = 0; k < n; ++k) EXPECT_EQ(all[static_cast<size_t>(k)], text(k, round));
             b.barrier(in_seconds(30));
           }
           b.close();
         }))
      EXPECT_EQ(f.text, "");
  }
}

TEST(Bootstrap, TextsLargerThanSocketBuffers) {
  const int n = 3;
  const Ranks ranks = connect_all(n);
  const std::string big(9 << 20, 'x');
  for (const Failure& f : in_threads(n, [&](int r) {
         const auto all = ranks[static_cast<size_t>(r)]->all_gather(big + std::to_string(r), in_seconds(60));
         for (int k = 0; k < n; ++k) EXPECT_EQ(all[static_cast<size_t>(k)], big + std::to_string(k));
         ranks[static_cast<size_t>(r)]->close();
       }))
    EXPECT_EQ(f.text, "");
}

// A tree of three levels, and more than a message for each of its connections.
TEST(Bootstrap, ManyLongTexts) {
  const int n = 20;
  const Ranks ranks = connect_all(n);
  const auto text = [](int r) { return std::string(static_cast<size_t>(r % 3) * 300'000, static_cast<char>('a' + r)); };
  for (const Failure& f : in_threads(n, [&](int r) {
         for (int round = 0; round < 3; ++round) {
           const auto all = ranks[static_cast<size_t>(r)]->all_gather(text(r + round), in_seconds(60));
           for (int k = 0; k < n; ++k) EXPECT_EQ(all[static_cast<size_t>(k)], text(k + round));
         }
         ranks[static_cast<size_t>(r)]->close();  // while others still read
       }))
    EXPECT_EQ(f.text, "");
}

TEST(Bootstrap, OneRankNeedsNoSockets) {
  const UniqueId id = make_unique_id();
  const int before = open_fds();
  const auto b = Bootstrap::connect(id, 1, 0, options(), in_seconds(5));
  EXPECT_EQ(open_fds(), before);
  EXPECT_EQ(b->all_gather("x", in_seconds(1)), std::vector<std::string>{"x"});
  EXPECT_EQ(b->peers().at(0).pid, getpid());
  const auto again = failure_of([&] { Bootstrap::connect(id, 1, 0, options(), in_seconds(5)); });
  EXPECT_EQ(again.code, Result::invalid_argument);
  EXPECT_THAT(again.text, HasSubstr("already used"));
}

TEST(Bootstrap, SixtyFourRanksAsThreads) {
  const int n = 64;
  const Ranks ranks = connect_all(n);
  for (const Failure& f : in_threads(n, [&](int r) {
         const auto all = ranks[static_cast<size_t>(r)]->all_gather(std::to_string(r), in_seconds(60));
         for (int k = 0; k < n; ++k) EXPECT_EQ(all[static_cast<size_t>(k)], std::to_string(k));
         ranks[static_cast<size_t>(r)]->close();
       }))
    EXPECT_EQ(f.text, "");
}

TEST(Bootstrap, SeveralCommunicatorsAtOnce) {
  const int groups = 4, n = 4;
  std::vector<UniqueId> ids;
  for (int g = 0; g < groups; ++g) ids.push_back(make_unique_id());
  for (const Failure& f : in_threads(groups * n, [&](int i) {
         const int g = i / n, r = i % n;
         const auto b = Bootstrap::connect(ids[static_cast<size_t>(g)], n, r, options(), in_seconds(60));
         const auto all = b->all_gather(std::to_string(g * 100 + r), in_seconds(30));
         for (int k = 0; k < n; ++k) EXPECT_EQ(all[static_cast<size_t>(k)], std::to_string(g * 100 + k));
         b->close();
       }))
    EXPECT_EQ(f.text, "");
}

TEST(Bootstrap, NothingIsLeftOpenAfter500Communicators) {
  connect_all(2);
  int before = 0;
  ASSERT_TRUE(eventually([&] { return (before = open_fds()) > 0; }));
  for (int i = 0; i < 500; ++i) {
    const Ranks ranks = connect_all(2);
    for (const auto& r : ranks) r->close();
    if (i == 50) {
      ASSERT_TRUE(eventually([&] { return open_fds() <= before; })) << open_fds() << " from " << before;
      before = open_fds();
    }
  }
  EXPECT_TRUE(eventually([&] { return open_fds() <= before; })) << open_fds() << " from " << before;
}

// Ids

TEST(UniqueIds, GarbageIsRecognisedAtOnce) {
  const UniqueId good = make_unique_id();
  UniqueId zero{}, half = good, flipped = good, random{};
  std::memset(half.internal + 64, 0, 64);
  flipped.internal[100] ^= 1;
  for (size_t i = 0; i < sizeof random.internal; ++i) random.internal[i] = static_cast<char>(i * 37 + 11);
  const auto text = [](const UniqueId& id) {
    const auto f =
        failure_of([&] { Bootstrap::connect(id, 2, 0, Options::from_environment(), in_seconds(60)); });
    EXPECT_EQ(f.code, Result::invalid_argument);
    return f.text;
  };
  EXPECT_THAT(text(zero), HasSubstr("all zeros"));
  EXPECT_THAT(text(half), HasSubstr("half-written"));
  EXPECT_THAT(text(flipped), HasSubstr("damaged"));
  EXPECT_THAT(text(random), HasSubstr("garbage"));
}

TEST(UniqueIds, BadRanksAreRefused) {
  const UniqueId id = make_unique_id();
  for (const auto& [n, r] : {std::pair{0, 0}, {-1, 0}, {2, 2}, {2, -1}}) {
    const auto f = failure_of(
        [&, n = n, r = r] { Bootstrap::connect(id, n, r, Options::from_environment(), in_seconds(5)); });
    EXPECT_EQ(f.code, Result::invalid_argument);
  }
}

TEST(UniqueIds, SecondUseIsAnsweredAtOnce) {
  const UniqueId id = make_unique_id();
  for (const Failure& f :
       in_threads(2, [&](int r) { Bootstrap::connect(id, 2, r, options(), in_seconds(30))->close(); }))
    EXPECT_EQ(f.text, "");
  const auto late = failure_of([&] { Bootstrap::connect(id, 2, 1, options(), in_seconds(600)); });
  EXPECT_EQ(late.code, Result::invalid_argument);
  EXPECT_THAT(late.text, AllOf(HasSubstr("already used"), HasSubstr("2 ranks")));
}

TEST(UniqueIds, WrongKeyIsRejected) {
  IdContent c = decode(make_unique_id());
  c.key[0] ^= 1;
  const auto f = failure_of([&] { Bootstrap::connect(encode(c), 2, 0, options(), in_seconds(60)); });
  EXPECT_EQ(f.code, Result::invalid_argument);
  EXPECT_THAT(f.text, AllOf(HasSubstr("can't prove"), HasSubstr(c.root.text())));
}

// A client that reads the hello exchange but doesn't know the key gets no further than the server's reply.
TEST(UniqueIds, ServerDropsAClientWithoutTheKey) {
  const IdContent c = decode(make_unique_id());
  SocketError error;
  const ProcessFd fd = connect_to(c.root, {}, in_seconds(10), error);
  ASSERT_TRUE(fd);
  const std::string magic{"\x8dMusterH", 8};
  const std::string hello = Writer()
                                .raw(magic)
                                .u32(kProtocolVersion)
                                .u32(1)
                                .raw(view(c.public_id))
                                .u64(0)
                                .u32(0)
                                .u32(0)
                                .raw(std::string(32, 'n'))
                                .take();
  ASSERT_EQ(send_all(fd.get(), hello + std::string(kProofBytes, 'p') + frame("believe me"), in_seconds(10)),
            IoStatus::done);
  std::string reply(kReplyBytes, 0);
  ASSERT_EQ(recv_all(fd.get(), reply.data(), reply.size(), in_seconds(10)), IoStatus::done);
  EXPECT_TRUE(begins_as_hello(reply));
  char more = 0;
  EXPECT_EQ(recv_all(fd.get(), &more, 1, in_seconds(10)), IoStatus::closed);
}

TEST(UniqueIds, OtherProtocolVersionIsToldBothSides) {
  const IdContent c = decode(make_unique_id());
  SocketError error;
  const ProcessFd fd = connect_to(c.root, {}, in_seconds(10), error);
  ASSERT_TRUE(fd);
  const std::string hello = Writer()
                                .raw({"\x8dMusterH", 8})
                                .u32(77)
                                .u32(1)
                                .raw(view(c.public_id))
                                .u64(0)
                                .u32(0)
                                .u32(0)
                                .raw(std::string(32, 'n'))
                                .take();
  ASSERT_EQ(send_all(fd.get(), hello, in_seconds(10)), IoStatus::done);
  std::string reply(kReplyBytes, 0);
  ASSERT_EQ(recv_all(fd.get(), reply.data(), reply.size(), in_seconds(10)), IoStatus::done);
  Reader r(reply);
  r.raw(8);
  EXPECT_EQ(r.u32(), kProtocolVersion);
  EXPECT_EQ(r.u32(), static_cast<uint32_t>(Status::other_version));
}

TEST(UniqueIds, ProofsHoldForOneRoleAndOneConversation) {
  const Key key = random_value<Key>();
  const std::string hello(kHelloBytes, 'h');
  const std::string reply = make_reply(Status::welcome, key, hello);
  const std::string server_proof = reply.substr(kReplyBytes - kProofBytes);
  EXPECT_FALSE(is_proof(key, hello, reply, server_proof));
  EXPECT_NE(make_reply(Status::welcome, key, hello), reply);
}

TEST(UniqueIds, ContentSurvives) {
  IdContent c;
  c.root.kind = Address::Kind::ipv6;
  for (size_t i = 0; i < 16; ++i) c.root.bytes[i] = static_cast<uint8_t>(i * 3);
  c.root.port = 65535;
  c.root.scope = 7;
  c.fixed = true;
  c.place = ~0ull;
  c.pid = 1 << 22;
  c.host = std::string(100, 'h');
  c.public_id.fill(1);
  c.key.fill(2);
  const IdContent d = decode(encode(c));
  EXPECT_EQ(d.root, c.root);
  EXPECT_EQ(d.fixed, true);
  EXPECT_EQ(d.place, c.place);
  EXPECT_EQ(d.pid, c.pid);
  EXPECT_EQ(d.host, std::string(23, 'h'));
  EXPECT_EQ(d.public_id, c.public_id);
  EXPECT_EQ(d.key, c.key);
}

// Ranks that don't fit together

TEST(Meeting, RanksThatNeverCameAreNamedToThoseThatDid) {
  const UniqueId id = make_unique_id();
  const int came[] = {0, 2, 3};
  for (const Failure& f :
       in_threads(3, [&](int i) { Bootstrap::connect(id, 6, came[i], options(), in_seconds(2)); })) {
    EXPECT_EQ(f.code, Result::timeout);
    EXPECT_THAT(f.text, AllOf(HasSubstr("ranks 1, 4, 5 never came"), HasSubstr("3 of 6"),
                              HasSubstr("MUSTER_INIT_TIMEOUT")));
  }
  const auto late = failure_of([&] { Bootstrap::connect(id, 6, 1, options(), in_seconds(600)); });
  EXPECT_THAT(late.text, AllOf(HasSubstr("already used"), HasSubstr("never came")));
}

TEST(Meeting, RankGivenTwice) {
  const UniqueId id = make_unique_id();
  for (const Failure& f :
       in_threads(2, [&](int) { Bootstrap::connect(id, 3, 1, options(), in_seconds(60)); })) {
    EXPECT_EQ(f.code, Result::invalid_argument);
    EXPECT_THAT(f.text,
                AllOf(HasSubstr("rank 1 was given twice"), HasSubstr("pid " + std::to_string(getpid()))));
  }
}

TEST(Meeting, DifferentNumberOfRanks) {
  const UniqueId id = make_unique_id();
  for (const Failure& f :
       in_threads(2, [&](int r) { Bootstrap::connect(id, 3 + r, r, options(), in_seconds(60)); })) {
    EXPECT_EQ(f.code, Result::invalid_argument);
    EXPECT_THAT(f.text, AllOf(HasSubstr("disagree"), HasSubstr("says 3"), HasSubstr("says 4")));
  }
}

TEST(Meeting, UnknownInterfaceIsNamed) {
  const UniqueId id = make_unique_id();
  const ScopedEnv env("NCCL_SOCKET_IFNAME", "nope0");
  for (const Failure& f : {failure_of([] { make_unique_id(); }),
                           failure_of([&] { Bootstrap::connect(id, 2, 0, options(), in_seconds(60)); })}) {
    EXPECT_EQ(f.code, Result::invalid_usage);
    EXPECT_THAT(f.text, HasSubstr("nope0"));
  }
}

// The last of 10 a second, of which only 4 might come at once, is 0.7 s late, whatever else happens; of 2 roots' 5 the last 0.4 s.
TEST(Meeting, ManyRanksComeOneByOne) {
  const ScopedEnv rate("NCCL_UID_STAGGER_RATE", "10"), threshold("NCCL_UID_STAGGER_THRESHOLD", "4");
  const auto seconds = [](const std::function<void()>& f) {
    const auto start = std::chrono::steady_clock::now();
    f();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  EXPECT_GE(seconds([] { EXPECT_EQ(connect_all(8)[7]->rank(), 7); }), 0.7);
  const std::vector<UniqueId> ids{make_unique_id(), make_unique_id()};
  const Options options = Options::from_environment();
  EXPECT_GE(seconds([&] {
              for (const Failure& f : in_threads(10, [&](int r) { Bootstrap::connect(ids, 10, r, options, in_seconds(30))->all_gather("x", in_seconds(30)); }))
                EXPECT_EQ(f.text, "");
            }),
            0.4);
}

TEST(Meeting, BadStaggering) {
  const ScopedEnv env("NCCL_UID_STAGGER_RATE", "0");
  const UniqueId id = make_unique_id();
  const Options options = Options::from_environment();
  for (const Failure& f : in_threads(2, [&](int r) { Bootstrap::connect(id, 2, r, options, in_seconds(5)); })) {
    EXPECT_EQ(f.code, Result::invalid_usage);
    EXPECT_THAT(f.text, HasSubstr("NCCL_UID_STAGGER_RATE=0"));
  }
}

TEST(Meeting, BadPortRange) {
  for (const char* text : {"1", "a-b", "5-4", "0-4", "1-70000", "1-2-3", "-"}) {
    const ScopedEnv env("MUSTER_PORT_RANGE", text);
    const auto f = failure_of([] { make_unique_id(); });
    EXPECT_EQ(f.code, Result::invalid_usage);
    EXPECT_THAT(f.text, HasSubstr(text));
  }
}

// NCCL_COMM_ID: every rank makes the same id by itself; several communicators in a row.
TEST(Meeting, FixedMeetingPoint) {
  SocketError error;
  Address any;
  any.kind = Address::Kind::ipv4;
  any.bytes = {127, 0, 0, 1};
  ProcessFd probe = listen_at(any, error);
  const std::string point = local_address(probe.get()).text();
  probe.reset();
  const ScopedEnv env("NCCL_COMM_ID", point);
  for (int round = 0; round < 3; ++round)
    for (const Failure& f : in_threads(3, [&](int r) {
           const auto b = Bootstrap::connect(make_unique_id(), 3, r, options(), in_seconds(60));
           EXPECT_EQ(b->all_gather(std::to_string(r), in_seconds(30)).at(2), "2");
           b->close();
         }))
      EXPECT_EQ(f.text, "");
}

// Exchanges

TEST(Exchange, MissingRankIsNamedToAll) {
  const Ranks ranks = connect_all(4);
  for (const Failure& f : in_threads(4, [&](int r) {
         if (r != 2) ranks[static_cast<size_t>(r)]->all_gather("x", in_seconds(r == 0 ? 1 : 60));
       })) {
    if (f.text.empty()) continue;
    EXPECT_EQ(f.code, Result::timeout);
    EXPECT_THAT(f.text, HasSubstr("rank 2 did not take part"));
  }
}

TEST(Exchange, RankThatLeftEndsIt) {
  const Ranks ranks = connect_all(3);
  ranks[1]->close();
  int failed = 0;
  for (const Failure& f : in_threads(3, [&](int r) {
         if (r != 1) ranks[static_cast<size_t>(r)]->all_gather("x", in_seconds(60));
       }))
    if (!f.text.empty()) {
      ++failed;
      EXPECT_THAT(f.text, HasSubstr("rank 1"));
      EXPECT_THAT(f.text, HasSubstr("has left"));
    }
  EXPECT_EQ(failed, 2);
  EXPECT_NE(failure_of([&] { ranks[1]->all_gather("x", in_seconds(60)); }).text, "");
}

TEST(Exchange, CloseFromAnotherThreadEndsAWait) {
  const Ranks ranks = connect_all(2);
  const auto f = in_threads(2, [&](int i) {
    if (i == 0) ranks[0]->all_gather("x", in_seconds(60));
    if (i == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      ranks[0]->close();
    }
  });
  EXPECT_THAT(f[0].text, HasSubstr("left"));
}

// Descriptors

std::string read_fd(int fd) {
  char text[64] = {};
  EXPECT_GE(pread(fd, text, sizeof text - 1, 0), 0);
  return text;
}
Fd memory(const std::string& text) {
  Fd fd(memfd_create("test", MFD_CLOEXEC));
  EXPECT_EQ(pwrite(fd.get(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  return fd;
}

TEST(Descriptors, GoToEveryMemberOfTheGroup) {
  const int n = 5;
  const std::vector<std::vector<int>> groups = {{0, 2, 4}, {1, 3}, {0, 2, 4}, {1, 3}, {0, 2, 4}};
  const Ranks ranks = connect_all(n);
  // Of the group's first rank, and of the others.
  for (const auto& [first, rest] : std::vector<std::pair<size_t, size_t>>{{0, 0}, {1, 1}, {150, 150}, {2, 0}, {0, 3}}) {
    const int before = open_fds();
    const auto count_of = [&, first = first, rest = rest](int r) { return r == groups[static_cast<size_t>(r)][0] ? first : rest; };
    for (const Failure& f : in_threads(n, [&](int r) {
           std::vector<Fd> owned;
           std::vector<int> mine;
           for (size_t k = 0; k < count_of(r); ++k) {
             owned.push_back(memory(std::to_string(r) + "/" + std::to_string(k)));
             mine.push_back(owned.back().get());
           }
           std::vector<int> from;
           ranks[static_cast<size_t>(r)]->exchange_fds(
               groups[static_cast<size_t>(r)], mine,
               [&](int rank, std::vector<Fd> fds) {
                 from.push_back(rank);
                 ASSERT_EQ(fds.size(), count_of(rank));
                 for (size_t k = 0; k < fds.size(); ++k)
                   EXPECT_EQ(read_fd(fds[k].get()), std::to_string(rank) + "/" + std::to_string(k));
               },
               in_seconds(60));
           std::vector<int> others = groups[static_cast<size_t>(r)];
           std::erase(others, r);
           EXPECT_EQ(from, others);
         }))
      EXPECT_EQ(f.text, "");
    EXPECT_TRUE(eventually([&] { return open_fds() <= before + 1; }))
        << open_fds() << " " << before;  // + the UNIX listener
  }
  for (const auto& r : ranks) r->close();
}

TEST(Descriptors, AFailingReceiverKeepsItsReasonAndServesTheOthers) {
  for (const int failing : {0, 1, 2}) {
    const Ranks ranks = connect_all(3);
    const Fd mine = memory("x");
    std::array<int, 3> received{};
    const int before = open_fds();
    const auto failures = in_threads(3, [&](int r) {
      ranks[static_cast<size_t>(r)]->exchange_fds(
          {0, 1, 2}, {mine.get()},
          [&](int, std::vector<Fd>) {
            if (r == failing) fail(Result::system_error, "no room");
            ++received[static_cast<size_t>(r)];
          },
          in_seconds(60));
    });
    for (int r = 0; r < 3; ++r) {
      EXPECT_EQ(failures[static_cast<size_t>(r)].text, r == failing ? "no room" : "");
      EXPECT_EQ(received[static_cast<size_t>(r)], r == failing ? 0 : 2);
    }
    EXPECT_TRUE(eventually([&] { return open_fds() <= before + 1; }));  // + the UNIX listener
  }
}

// News

struct Reports {
  std::mutex mutex;
  std::vector<Bootstrap::Trouble> all;
  std::function<void(const Bootstrap::Trouble&)> sink() {
    return [this](const Bootstrap::Trouble& t) {
      const std::lock_guard lock(mutex);
      all.push_back(t);
    };
  }
  size_t size() {
    const std::lock_guard lock(mutex);
    return all.size();
  }
};

TEST(News, AnnouncementsReachAllOthersOnce) {
  const int n = 5;
  std::vector<Reports> reports(n);
  const Ranks ranks = connect_all(n);
  for (int r = 0; r < n; ++r) ranks[static_cast<size_t>(r)]->watch(reports[static_cast<size_t>(r)].sink());
  ranks[1]->announce({1, Result::invalid_usage, "calls differ"});
  ranks[3]->announce({3, Result::remote_error, "aborted"});
  ASSERT_TRUE(eventually([&] {
    for (int r = 0; r < n; ++r)
      if (reports[static_cast<size_t>(r)].size() < (r == 1 || r == 3 ? 1u : 2u)) return false;
    return true;
  }));
  for (const auto& r : ranks) r->close();
  for (int r = 0; r < n; ++r) {
    EXPECT_EQ(reports[static_cast<size_t>(r)].size(), r == 1 || r == 3 ? 1u : 2u);
    for (const auto& t : reports[static_cast<size_t>(r)].all)
      EXPECT_EQ(t.message, t.rank == 1 ? "calls differ" : "aborted");
  }
}

TEST(Telling, EveryOtherRankHearsEachTextOnceAndInOrder) {
  for (const int n : {1, 2, 3, 8}) {
    const Ranks ranks = connect_all(n);
    const int texts = 200;
    std::mutex mutex;
    std::vector<std::vector<std::vector<std::string>>> heard(
        static_cast<size_t>(n), std::vector<std::vector<std::string>>(static_cast<size_t>(n)));
    std::atomic<int> count{0};
    const auto listen = [&](int r) {
      ranks[static_cast<size_t>(r)]->watch([](const Bootstrap::Trouble& t) { ADD_FAILURE() << t.message; },
                                           [&, r](int origin, std::string_view text) {
                                             const std::lock_guard lock(mutex);
                                             heard[static_cast<size_t>(r)][static_cast<size_t>(origin)].emplace_back(text);
                                             ++count;
                                           });
    };
    const auto text = [](int r, int i) { return fmt::format("{} {}", r, i) + std::string(static_cast<size_t>(i), 'x'); };
    for (int r = 1; r < n; ++r) listen(r);
    for (const Failure& f : in_threads(n, [&](int r) {
           for (int i = 0; i < texts; ++i) ranks[static_cast<size_t>(r)]->tell(text(r, i));
           ranks[static_cast<size_t>(r)]->barrier(in_seconds(30));
         }))
      EXPECT_EQ(f.text, "");
    listen(0);  // hears what was told before
    EXPECT_TRUE(eventually([&] { return count == n * (n - 1) * texts; })) << count;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // time for one that comes twice
    const std::lock_guard lock(mutex);
    for (int r = 0; r < n; ++r)
      for (int origin = 0; origin < n; ++origin) {
        std::vector<std::string> right;
        for (int i = 0; i < texts && origin != r; ++i) right.push_back(text(origin, i));
        EXPECT_EQ(heard[static_cast<size_t>(r)][static_cast<size_t>(origin)], right) << r << " hears " << origin;
      }
    for (const auto& r : ranks) r->close();
  }
}

TEST(Telling, TextsAreLimitedAndNothingIsHeardAfterClose) {
  const Ranks ranks = connect_all(2);
  EXPECT_THAT(failure_of([&] { ranks[0]->tell(std::string((1 << 20) + 1, 'x')); }).text, HasSubstr("1048576 is the most"));
  std::atomic<int> heard{0};
  ranks[1]->watch([](const Bootstrap::Trouble&) {}, [&](int, std::string_view text) {
    EXPECT_EQ(text.size(), size_t{1} << 20);
    ++heard;
    ranks[1]->close();
  });
  ranks[0]->tell(std::string(1 << 20, 'x'));
  ranks[0]->tell("late");
  EXPECT_TRUE(eventually([&] { return heard == 1; }));
  ranks[0]->close();
  ranks[0]->tell("from a rank that has left");
  EXPECT_EQ(heard, 1);
}

TEST(News, CleanEndsAreNotDeaths) {
  const int n = 4;
  std::vector<Reports> reports(n);
  Ranks ranks = connect_all(n);
  for (int r = 0; r < n; ++r) ranks[static_cast<size_t>(r)]->watch(reports[static_cast<size_t>(r)].sink());
  for (const int r : {2, 0, 3, 1}) {
    ranks[static_cast<size_t>(r)]->close();
    ranks[static_cast<size_t>(r)].reset();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  for (auto& r : reports) EXPECT_EQ(r.size(), 0u);
}

TEST(News, AnEndWithoutGoodbyeIsADeath) {
  const int n = 4;
  std::vector<Reports> reports(n);
  Ranks ranks = connect_all(n);
  for (int r = 0; r < n; ++r)
    if (r != 1) ranks[static_cast<size_t>(r)]->watch(reports[static_cast<size_t>(r)].sink());
  ranks[2].reset();
  EXPECT_TRUE(eventually([&] { return reports[0].size() && reports[3].size(); }));
  ranks[1]->watch(reports[1].sink());  // what came before is reported at once
  EXPECT_EQ(reports[1].size(), 1u);
  for (const int r : {0, 1, 3}) {
    EXPECT_EQ(reports[static_cast<size_t>(r)].all.at(0).rank, 2);
    EXPECT_THAT(reports[static_cast<size_t>(r)].all.at(0).message,
                AllOf(HasSubstr("rank 2 (host "), HasSubstr("pid " + std::to_string(getpid())),
                      HasSubstr("ended without")));
    ranks[static_cast<size_t>(r)]->close();
    EXPECT_EQ(reports[static_cast<size_t>(r)].size(), 1u);
  }
}

TEST(News, ReportMayCloseTheCommunicator) {
  Ranks ranks = connect_all(2);
  std::atomic<bool> reported{false};
  ranks[0]->watch([&](const Bootstrap::Trouble&) {
    ranks[0]->announce({0, Result::remote_error, "me too"});
    ranks[0]->close();
    reported = true;
  });
  ranks[1].reset();
  EXPECT_TRUE(eventually([&] { return reported.load(); }));
}

}  // namespace
}  // namespace muster
