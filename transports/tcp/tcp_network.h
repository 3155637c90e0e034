// TCP as what joins hosts. Connections are made when they are first used, by whichever rank comes first, as many streams
// as there are interfaces that both ranks use, times NCCL_SOCKET_NTHREADS times NCCL_NSOCKS_PERTHREAD.
//
// Where there are several, one may be lost: each keeps what the peer's host hasn't acknowledged (Unacknowledged), and the others send
// that again. So that every message arrives once, both ends
//   1. send and forget nothing any more by that stream, and say so (`ends`);
//   2. when both have, read what it still has, close it and say how many messages it brought them (`brought`);
//   3. send again what is behind those.
// Who dialed it then dials it anew, with patience, under a number that was never used (redial.cpp); what stands again is a stream like
// any other.
#pragma once

#include <list>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "transports/tcp/dialing.h"
#include "transports/tcp/door.h"
#include "transports/tcp/stream.h"
#include "transports/tcp/unacknowledged.h"
#include "transports/wired_network.h"

namespace muster {

class TcpNetwork final : public WiredNetwork {
 public:
  // Throws system_error where this host has no address to be reached at, invalid_usage for options.
  explicit TcpNetwork(const NetworkSetup& setup);
  ~TcpNetwork() override;

  std::string_view name() const override { return "tcp"; }
  size_t slot_bytes() const override { return kSlotBytes; }
  std::string address() const override { return tcp::write_rails(door_.rails()); }
  int event_fd() const override { return epoll_.get(); }

  size_t streams() const;       // that stand, to all peers
  size_t lost_streams() const;  // that were given up, so far

 private:
  // All-reduce of 4 MiB between two ranks on a busy machine, best of a few: 5.5 ms with 128 KiB, 5.4 with 256, 2.4 with 512, 3.1
  // with 1 MiB.
  static constexpr size_t kSlotBytes = 512 << 10;

  struct Link;
  struct Line final : tcp::Stream::Reader {  // a stream of a link
    Line(TcpNetwork& of, Link& to, Fd fd, uint16_t n, bool has_others)
        : network(of), link(to), stream(std::move(fd)), number(n), keeps(has_others) {}
    std::byte* begin(WireHeader& header) override;
    void end(const WireHeader& header) override;
    std::string text() const;  // whence and where to

    TcpNetwork& network;
    Link& link;
    tcp::Stream stream;
    Landing landing;        // of the message that comes
    bool sending = false;
    bool watches_out = false;  // wakes a sleeper also when it can send

    const uint16_t number;     // equal at both ends
    const bool keeps;          // what isn't acknowledged: there are others
    tcp::Unacknowledged sent;  // kept
    uint64_t brought = 0;      // messages that have come by it
    // When it is given up:
    std::string why;
    std::deque<WireOp*> unsent;
    bool peer_ended = false;  // sends nothing by it any more, and has been told what it brought
  };
  // A message that the network itself has to send: one again, or one to the peer's network.
  struct OwnMessage {
    WireOp op;
    std::unique_ptr<std::byte[]> payload;
  };
  enum class Says : uint8_t { nothing = 0, ends, brought };  // of a stream; WireHeader::own
  struct Link {
    int peer = 0;
    enum class Maker : uint8_t { nobody, this_rank, the_peer } maker = Maker::nobody;
    std::list<tcp::Dialing> dialing;
    std::vector<std::unique_ptr<Line>> lines;
    size_t most_lines = 0;        // that there were at a time
    size_t streams = 1;           // that were dialed at first: numbers that are equal modulo this are by one way
    std::deque<WireOp*> waiting;  // for the first of them
    bool lost = false;
    bool leaving = false;         // the peer has said so
    std::vector<std::unique_ptr<Line>> given_up;  // of which isn't known yet what they brought the peer
    std::set<uint64_t> settled;                   // numbers of those of which it is
    std::list<OwnMessage> own;                    // not sent yet
  };

  bool poll() override;
  void post(WireOp& op) override;
  void expect(int peer) noexcept override;
  void disconnect(int peer) noexcept override;
  bool arm_events() override;

  Link& link_to(int peer);
  void dial(Link& link);
  bool advance_dialing(Link& link);
  std::list<tcp::Dialing> dial_streams(int peer, std::optional<size_t> number = {});  // the first ones, or that one
  void enter(Link& link, uint16_t number, uint16_t streams, Fd fd);
  // Of the connection that this rank makes to the peer, or the peer to this rank.
  tcp::PairKey key_to(int peer) { return {secrets(peer).out, secrets(peer).in}; }
  tcp::PairKey key_from(int peer) { return {secrets(peer).in, secrets(peer).out}; }
  tcp::Verdict judge(const tcp::Hello& hello);
  bool serve_door();
  Line& best_line(Link& link, const WireOp& op);
  bool receive(Line& line);
  bool send(Line& line);
  void taken(Line& line, WireOp& op);  // by the kernel
  void done(WireOp& op) noexcept;
  bool release(Line& line, bool idle);
  void break_off(Link& link, const std::string& why) { broken_.push_back({link.peer, nullptr, why}); }
  void break_line(Line& line, const std::string& why) { broken_.push_back({line.link.peer, &line, why}); }
  void look_for_silence();
  bool look_at_broken();
  void lose(Link& link, const std::string& why);

  // lost_stream.cpp
  void give_up(Line& line, const std::string& why);
  void say(Link& link, Says what, uint64_t stream, uint64_t messages);
  void post_own(Link& link, const WireHeader& header, std::unique_ptr<std::byte[]> payload);
  void hear(Link& link, const WireHeader& header);
  void drain(Line& line);
  void send_again(Line& line, uint64_t brought);

  // redial.cpp
  struct Redial {  // of a stream that was lost
    Link* link;
    size_t number;  // that the next attempt has, or the one under way
    std::chrono::milliseconds pause;
    std::chrono::steady_clock::time_point due;  // the next attempt, or the end of the one under way
    bool dials = false;
  };
  void plan_redial(Link& link, size_t lost);
  void look_at_redials();
  void begin_redial(Redial& redial);
  void end_redial(Link& link, const tcp::Dialing& dialing, bool connected);
  void redial_later(Redial& redial, bool number_is_used);

  const tcp::Settings settings_;
  const Fd epoll_, timer_;
  tcp::Door door_;
  std::vector<std::unique_ptr<Link>> links_;  // by peer
  std::vector<Line*> lines_;                  // all that stand
  int dialing_ = 0;                           // links of which streams are being dialed
  std::vector<Redial> redials_;
  struct Broken {
    int peer;
    Line* line;  // null: all of the connection
    std::string why;
  };
  std::vector<Broken> broken_;                            // to be given up
  std::vector<std::pair<Link*, WireHeader>> heard_;       // what peers' networks say
  std::vector<std::unique_ptr<Line>> settled_;            // lines that nothing needs when the look is over
  int idle_ = 0;                                          // looks since anything moved, while a stream keeps an op
  uint64_t polls_ = 0;
  bool woken_ = false;                        // from sleep, perhaps by the timer
  bool new_dialing_ = false;                  // since the last look
  std::chrono::steady_clock::time_point looked_{};   // for silence
  bool closing_ = false;
};

}  // namespace muster
