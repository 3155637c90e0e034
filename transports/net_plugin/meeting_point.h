// Where ranks ask each other for the handles of a plugin's connections. A plugin may take one connection per listener and
// handle, so these are made when a peer asks, over TCP: one short question, one short answer.
//
// A rank says the addresses of its host's interfaces; who asks tries all at once, and the first that proves to be that rank
// counts. Nothing here blocks.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <string>
#include <vector>

#include "base/fd.h"

namespace muster::net_plugin {

struct Question {
  uint64_t secret = 0;  // of the pair, in this direction
  uint32_t from = 0;
  uint32_t rails = 0;
  uint64_t number = 0;  // the same at all addresses of the peer, another for each question
};

class MeetingPoint {
 public:
  // port_range: as in MUSTER_PORT_RANGE; empty: the kernel's choice. interfaces: whose addresses it says; empty: all. Throws
  // system_error where no port can be had.
  MeetingPoint(const std::string& port_range, std::vector<std::string> interfaces);

  std::string address() const;  // "PORT ADDRESS ADDRESS ..."
  // Answers those who ask, with what answer_with() makes; nothing for strangers, who are turned away. True if anything came.
  bool serve(const std::function<std::string(const Question&)>& answer);

 private:
  struct Guest {
    Fd fd;
    std::string in, out;
    std::chrono::steady_clock::time_point until;
  };
  static bool advance(Guest& g, const std::function<std::string(const Question&)>& answer);  // false: done with it

  const std::vector<std::string> interfaces_;
  Fd listener_;
  int port_ = 0;
  std::list<Guest> guests_;
};

// `secret`: of the pair, from who answers to who asked.
std::string answer_with(uint64_t secret, const std::string& text);

// A question on its way.
class Asking {
 public:
  // `address`: of a MeetingPoint. `answer_secret`: of the pair, in the other direction.
  Asking(const std::string& address, const Question& question, uint64_t answer_secret);

  // The answer; empty: not yet: the peer answers when one of its calls moves the network, which may be late. Throws
  // remote_error when no address is left that may answer, saying what each of them said.
  std::string advance();

 private:
  struct Attempt {
    std::string where;
    Fd fd;
    bool connected = false, sent = false;
    std::string in, problem;
  };
  void advance(Attempt& a);
  bool read_answer(Attempt& a, std::string* answer);

  Question question_;
  uint64_t answer_secret_;
  std::vector<Attempt> attempts_;
};

}  // namespace muster::net_plugin
