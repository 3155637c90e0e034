#include "bootstrap/handshake.h"

#include <algorithm>
#include <thread>

#include "base/error.h"
#include "bootstrap/unique_id.h"

namespace muster {
namespace {

constexpr std::string_view kMagic{"\x8dMusterH", kMagicBytes};
constexpr std::chrono::seconds kAttempt{10};  // for one connection with one greeting

Digest proof_of(std::string_view role, const Key& key, std::string_view hello, std::string_view reply_head) {
  return hmac_sha256(view(key), Writer().text(role).text(hello).text(reply_head).take());
}

std::string_view head_of(std::string_view reply) { return reply.substr(0, kReplyBytes - kProofBytes); }

}  // namespace

const char* explain(Greeting::Outcome o) {
  switch (o) {
    case Greeting::unknown:
      return "Muster listens there, but doesn't know this id";
    case Greeting::silent:
      return "it accepts connections but doesn't answer (stopped, or not Muster)";
    case Greeting::closed:
      return "it closed the connection";
    case Greeting::stranger:
      return "something that isn't Muster answers there";
    default:
      return "?";
  }
}

bool begins_as_hello(std::string_view first_bytes) {
  first_bytes = first_bytes.substr(0, kMagicBytes);
  return first_bytes == kMagic.substr(0, first_bytes.size());
}

ParsedHello parse_hello(std::string_view bytes) {
  Reader r(bytes);
  r.raw(kMagicBytes);
  ParsedHello p;
  p.version = r.u32();
  p.hello.purpose = static_cast<Purpose>(r.u32());
  p.hello.id = to_array<16>(r.raw(16));
  p.hello.token = r.u64();
  p.hello.rank = r.u32();
  r.u32();
  p.hello.nonce = to_array<32>(r.raw(32));
  return p;
}

std::string make_reply(Status status, const Key& key, std::string_view hello) {
  const Digest nonce = status == Status::welcome ? random_value<Digest>() : Digest{};
  std::string reply =
      Writer().raw(kMagic).u32(kProtocolVersion).u32(static_cast<uint32_t>(status)).raw(view(nonce)).take();
  const Digest proof = status == Status::welcome ? proof_of("muster server", key, hello, reply) : Digest{};
  return reply.append(view(proof));
}

bool is_proof(const Key& key, std::string_view hello, std::string_view reply, std::string_view proof) {
  return equal_in_constant_time(view(proof_of("muster client", key, hello, head_of(reply))), proof);
}

Digest session_secret(const Key& key, std::string_view hello, std::string_view reply) {
  return proof_of("muster session", key, hello, head_of(reply));
}

std::string make_hello(const Credentials& c) {
  return Writer()
      .raw(kMagic)
      .u32(kProtocolVersion)
      .u32(static_cast<uint32_t>(c.purpose))
      .raw(view(c.id))
      .u64(c.token)
      .u32(c.rank)
      .u32(0)
      .raw(view(random_value<Digest>()))
      .take();
}

Greeting judge_reply(const Credentials& c, std::string_view hello, std::string_view reply) {
  if (!begins_as_hello(reply)) return {Greeting::stranger};
  Reader r(reply);
  r.raw(kMagicBytes);
  const auto version = r.u32();
  const auto status = static_cast<Status>(r.u32());
  if (status == Status::other_version || version != kProtocolVersion)
    return {Greeting::other_version, version};
  if (status == Status::unknown) return {Greeting::unknown};
  const std::string_view server_proof = reply.substr(kReplyBytes - kProofBytes);
  if (!equal_in_constant_time(view(proof_of("muster server", c.key, hello, head_of(reply))), server_proof))
    return {Greeting::wrong_key};
  return {Greeting::welcome, version, session_secret(c.key, hello, reply)};
}

Digest make_proof(const Key& key, std::string_view hello, std::string_view reply) {
  return proof_of("muster client", key, hello, head_of(reply));
}

Greeting greet(int fd, const Credentials& c, Deadline deadline) {
  const auto outcome_of = [](IoStatus s) {
    return s == IoStatus::expired ? Greeting::silent : Greeting::closed;
  };
  const std::string hello = make_hello(c);
  if (const IoStatus s = send_all(fd, hello, deadline); s != IoStatus::done) return {outcome_of(s)};
  std::string reply(kReplyBytes, 0);
  if (const IoStatus s = recv_all(fd, reply.data(), kMagicBytes, deadline); s != IoStatus::done)
    return {outcome_of(s)};
  if (!begins_as_hello(reply)) return {Greeting::stranger};
  if (const IoStatus s = recv_all(fd, reply.data() + kMagicBytes, kReplyBytes - kMagicBytes, deadline);
      s != IoStatus::done)
    return {outcome_of(s)};
  const Greeting greeting = judge_reply(c, hello, reply);
  if (greeting.outcome != Greeting::welcome) return greeting;
  if (const IoStatus s = send_all(fd, view(make_proof(c.key, hello, reply)), deadline); s != IoStatus::done)
    return {outcome_of(s)};
  return greeting;
}

void Backoff::pause(Deadline deadline) {
  const auto jitter =
      std::chrono::milliseconds(random_value<uint32_t>() % static_cast<uint32_t>(next_.count() + 1));
  const std::chrono::nanoseconds wanted = next_ / 2 + jitter;
  for (const Deadline end = deadline.within(wanted); !end.expired();) std::this_thread::sleep_for(end.nap());
  next_ = std::min(next_ * 2, std::chrono::milliseconds(1000));
}

Connection dial(const Address& target, const Source& source, const Credentials& c, Deadline deadline,
                const DialPolicy& policy) {
  const auto began = Deadline::Clock::now();
  Backoff backoff;
  int refused_in_row = 0, starved = 0;
  std::string reason, shortage;  // where a lack on this host took the time, others may have given up by the last attempt
  for (int attempt = 1;; ++attempt) {
    const Deadline this_try = deadline.within(kAttempt);
    SocketError error;
    ProcessFd fd = connect_to(target, source, this_try, error);
    if (fd) {
      refused_in_row = 0;
      const Greeting g = greet(fd.get(), c, this_try);
      if (g.outcome == Greeting::welcome) return {std::move(fd), g.secret, reason};
      if (g.outcome == Greeting::wrong_key)
        fail(Result::invalid_argument,
             "{} at {} can't prove that it knows the key: the id was damaged on its way, or another program "
             "took that address. Pass the "
             "id unchanged, and make a new one for each communicator",
             policy.whom, target.text());
      if (g.outcome == Greeting::other_version)
        fail(
            Result::invalid_usage,
            "{} at {} speaks bootstrap protocol {}, this process speaks {}. Use the same Muster on all ranks",
            policy.whom, target.text(), g.version, kProtocolVersion);
      reason = explain(g.outcome);
    } else {
      refused_in_row = error.error == ECONNREFUSED ? refused_in_row + 1 : 0;
      reason = fmt::format("{}: {}", error.call, describe_connect_error(error.error));
      if (error.error == EADDRNOTAVAIL) shortage = reason;
    }
    if (error.error == EMFILE && ++starved >= 5)  // what this process has open, it may have open for ever
      fail(Result::system_error, "{} can't be reached at {}: {}. Raise the limit of open files (ulimit -n)", policy.whom, target.text(), reason);
    const bool hopeless = policy.refusals > 0 && refused_in_row >= policy.refusals;
    if (hopeless || deadline.expired()) {
      const std::chrono::duration<double> spent = Deadline::Clock::now() - began;
      fail(policy.code, "{} can't be reached at {}{}: {} attempts in {:.1f} s, the last: {}{}. {}", policy.whom,
           target.text(),
           source.interface.empty()
               ? ""
               : fmt::format(" from {} ({})", source.interface, source.address.host_text()),
           attempt, spent.count(), reason, shortage.empty() || shortage == reason ? "" : "; before that, " + shortage,
           policy.remedy);
    }
    backoff.pause(deadline);
  }
}

}  // namespace muster
