#include "comm/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace muster {
namespace {

constexpr size_t kMostNamed = 8;  // with process and state; of more only the numbers

using Ranks = std::vector<const RankStatus*>;

std::vector<int> numbers_of(const Ranks& ranks) {
  std::vector<int> n;
  for (const RankStatus* r : ranks) n.push_back(r->rank);
  return n;
}

std::string describe(const RankStatus& r) {
  const char* state = "";
  switch (r.process) {
    case ProcessState::running:
      break;
    case ProcessState::stopped:
      state = ", stopped by a signal";
      break;
    case ProcessState::traced:
      state = ", stopped by a debugger";
      break;
    case ProcessState::silent:
      state = ", frozen or starved";
      break;
    case ProcessState::gone:
      state = ", gone";
      break;
  }
  return fmt::format("rank {} (pid {}{})", r.rank, r.pid, state);
}

std::string describe(const Ranks& ranks) {
  if (ranks.size() > kMostNamed) return name_ranks(numbers_of(ranks));
  std::string text;
  for (const RankStatus* r : ranks) text += (text.empty() ? "" : ", ") + describe(*r);
  return text;
}

std::string the_others(size_t n) { return n == 1 ? "the other one" : fmt::format("the other {}", n); }
std::string calls(uint64_t n) { return fmt::format("{} call{}", n, n == 1 ? "" : "s"); }
const char* has(size_t n) { return n == 1 ? "has" : "have"; }
const char* is(size_t n) { return n == 1 ? "is" : "are"; }
std::string last_started(uint64_t number) {
  return number ? fmt::format("started call {}", number) : std::string("started no call");
}

// By the last call started.
using Groups = std::map<uint64_t, Ranks>;

// "rank 5 (pid 17, stopped by a signal) is behind by 1 call: it has started call 17, the other 7 call 18. "
std::string describe_apart(const Groups& groups, uint64_t most, size_t all) {
  std::string text;
  size_t few = 0;
  for (const auto& [number, ranks] : groups) {
    if (number == most) continue;
    few += ranks.size();
    const uint64_t by = number < most ? most - number : number - most;
    text += fmt::format("{}{} {} {} by {}: {} {} {}", text.empty() ? "" : "; ", describe(ranks),
                        is(ranks.size()), number < most ? "behind" : "ahead", calls(by),
                        ranks.size() == 1 ? "it" : "they", has(ranks.size()), last_started(number));
  }
  return fmt::format("{}, {} {}. ", text, the_others(all - few),
                     most ? fmt::format("call {}", most) : "none");
}

std::string describe_level(const Ranks& ranks, uint64_t call) {
  Ranks in_it;
  for (const RankStatus* r : ranks)
    if (r->finished.number < call) in_it.push_back(r);
  if (ranks.size() == 1)
    return in_it.empty() ? fmt::format("{} is between calls. ", describe(*ranks[0]))
                         : fmt::format("{} is in call {}. ", describe(*ranks[0]), call);
  if (in_it.empty())
    return call ? fmt::format("All {} ranks have finished call {}, and none has started another. ",
                              ranks.size(), call)
                : fmt::format("None of the {} ranks has started a call. ", ranks.size());
  if (in_it.size() == ranks.size())
    return fmt::format("All {} ranks are in call {}: none is behind. ", ranks.size(), call);
  return fmt::format("All {} ranks have started call {}, and {} of them {} finished it: {} {} still in it. ",
                     ranks.size(), call, ranks.size() - in_it.size(), has(ranks.size() - in_it.size()),
                     describe(in_it), is(in_it.size()));
}

std::string sentence(std::string text) {
  if (text.starts_with('r')) text[0] = 'R';
  return text;
}

const char* words_for(RankWait::Kind k) {
  switch (k) {
    case RankWait::messages:
      return "a group of sends and receives";
    case RankWait::signals:
      return "wait_signal";
    default:
      return nullptr;  // numbered, or told by where ranks are
  }
}

}  // namespace

std::string name_ranks(const std::vector<int>& ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (end - i < 3) end = i + 1;  // two in a row are shorter one by one
    text += fmt::format("{}{}", i ? ", " : "", ranks[i]);
    if (end - i > 1) text += fmt::format("..{}", ranks[end - 1]);
    i = end;
  }
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", text);
}

std::string_view name_of(Verdict::Kind k) {
  switch (k) {
    case Verdict::Kind::moving:
      return "moving";
    case Verdict::Kind::idle:
      return "idle";
    case Verdict::Kind::level:
      return "level";
    case Verdict::Kind::apart:
      return "apart";
  }
  return "?";
}

Verdict judge(const CommunicatorStatus& c) {
  Verdict v;
  Ranks present, halted, gone, left;
  for (const RankStatus& r : c.ranks) {
    if (r.left) {
      left.push_back(&r);
      continue;
    }
    present.push_back(&r);
    if (r.process == ProcessState::gone)
      gone.push_back(&r);
    else if (r.process != ProcessState::running)
      halted.push_back(&r);
  }
  v.halted = numbers_of(halted);
  v.gone = numbers_of(gone);

  Groups groups;
  for (const RankStatus* r : present) groups[r->started.number].push_back(r);
  size_t most = 0;
  for (const auto& [number, ranks] : groups)
    if (ranks.size() >= most) {  // of equal groups the one further ahead: those behind are named
      most = ranks.size();
      v.call = number;
    }

  const bool moving =
      std::any_of(present.begin(), present.end(), [](const RankStatus* r) { return r->moving; });
  if (moving) {
    v.kind = Verdict::Kind::moving;
    v.text = "Calls are being made. ";
  } else if (groups.size() > 1) {
    v.kind = Verdict::Kind::apart;
    for (const auto& [number, ranks] : groups) {
      if (number == v.call) continue;
      auto& list = number < v.call ? v.behind : v.ahead;
      for (const RankStatus* r : ranks) list.push_back(r->rank);
    }
    std::sort(v.behind.begin(), v.behind.end());
    std::sort(v.ahead.begin(), v.ahead.end());
    v.text = sentence(describe_apart(groups, v.call, present.size()));
  } else if (!present.empty()) {
    const bool idle = std::all_of(present.begin(), present.end(),
                                  [&](const RankStatus* r) { return r->finished.number == v.call; });
    v.kind = idle ? Verdict::Kind::idle : Verdict::Kind::level;
    v.text = sentence(describe_level(present, v.call));
  }

  // Those who don't run and haven't been named so.
  Ranks unnamed;
  const bool all_named = v.kind == Verdict::Kind::apart && v.behind.size() + v.ahead.size() <= kMostNamed;
  for (const auto* list : {&halted, &gone})
    for (const RankStatus* r : *list)
      if (!all_named || r->started.number == v.call) unnamed.push_back(r);
  if (!unnamed.empty()) v.text += fmt::format("Not running: {}. ", describe(unnamed));

  size_t waits = 0;
  for (const RankStatus* r : present)
    if (r->wait && words_for(r->wait->kind) && ++waits <= kMostNamed)
      v.text += fmt::format("Rank {} has waited {:.3g} s in {}{}. ", r->rank, r->wait->seconds,
                            words_for(r->wait->kind),
                            r->wait->peer >= 0 ? fmt::format(" for rank {}", r->wait->peer) : "");
  if (!left.empty())
    v.text += fmt::format("Destroyed their communicator: {}. ", name_ranks(numbers_of(left)));
  if (!c.joining.empty()) v.text += fmt::format("Not come in yet: {}. ", name_ranks(c.joining));
  if (!c.elsewhere.empty())
    v.text += sentence(fmt::format("{} {} on other hosts: run `muster status` there, too. ",
                                   name_ranks(c.elsewhere), is(c.elsewhere.size())));
  while (v.text.ends_with(' ')) v.text.pop_back();
  return v;
}

}  // namespace muster
