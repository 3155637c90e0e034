// The root of an id, while ranks come, say nonsense, and leave. Members prove that they know the key; what
// they say then is the input: a byte for what a member does, and what goes with it.
#include <sys/socket.h>

#include <optional>
#include <vector>

#include "bootstrap/root.h"
#include "fuzz.h"

using namespace muster;
using namespace muster::fuzz;

namespace {

constexpr size_t kMostMembers = 6;
Deadline soon() { return Deadline::after(std::chrono::seconds(10)); }

// All that was sent before has been read.
void settle(EventLoop& loop) {
  for (int i = 0; i < 2; ++i) loop.call([] {});
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Service& service = Service::get();
  static const Address door = service.listen_local();
  IdContent id;
  id.public_id = random_value<PublicId>();
  const EndpointName name{Purpose::join, id.public_id, 0};
  service.loop().call([&] { Root::start(service, id); });

  struct Member {
    ProcessFd fd;
    Join join;
    bool joined = false;
  };
  std::vector<Member> members;
  for (Input in(data, size); !in.empty() && members.size() < kMostMembers;) {
    const uint8_t action = in.byte();
    Member m;
    SocketError error;
    m.fd = connect_to(door, {}, soon(), error);
    require(static_cast<bool>(m.fd), "connected");
    if (greet(m.fd.get(), {Purpose::join, id.public_id, id.key, 0, 0}, soon()).outcome != Greeting::welcome)
      break;
    if (action & 1) {  // whatever it is
      send_all(m.fd.get(), frame(in.bytes(in.byte())), soon());
    } else {
      m.join = {
          in.byte() % 4, 1 + in.byte() % 4, members.size(), Address::local({1}), {"host", 1, 0}, 10'000, "1"};
      if (action & 2) m.join.host.place = in.byte();
      if (action & 4) m.join.version = "2";
      if (action & 8) m.join.listener = {Address::Kind::ipv4, {10, 0, 0, 1}, 1};
      m.joined = m.join.rank < m.join.nranks;
      send_all(m.fd.get(), frame(m.join.encode()), soon());
    }
    settle(service.loop());
    if (action & 16) {
      m.fd.reset();
      settle(service.loop());
    } else {
      members.push_back(std::move(m));
    }
  }
  for (Member& m : members) shutdown(m.fd.get(), SHUT_WR);
  std::optional<uint64_t> communicator;
  for (Member& m : members) {
    std::string message;
    if (recv_frame(m.fd.get(), message, soon()) != IoStatus::done) continue;
    const std::optional<Answer> answer = Answer::decode(message);
    require(answer.has_value(), "an answer can be read");
    if (answer->code != Result::success) {
      require(!answer->error.empty(), "a refusal says why");
      continue;
    }
    require(m.joined, "in a group are those that joined");
    require(communicator.value_or(answer->communicator_id) == answer->communicator_id,
            "a group has one name");
    communicator = answer->communicator_id;
    require(answer->next_token < kMostMembers, "a neighbour is one of the members");
  }
  members.clear();
  service.loop().call([&] { service.close(name); });
  return 0;
}
