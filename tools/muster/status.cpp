// `muster status`: where the ranks of this host are in their calls, and who is behind.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/host.h"
#include "base/text.h"
#include "comm/host_status.h"
#include "comm/life_call.h"
#include "comm/state.h"
#include "comm/verdict.h"
#include "commands.h"

namespace muster::tool {
namespace {

using nlohmann::ordered_json;

constexpr int kSchema = 1;  // raised when a field goes or changes its meaning; new ones may come
constexpr std::chrono::milliseconds kApart{100};

struct StatusOptions {
  bool json = false;
  std::vector<int> pids;
};

std::string hex(uint64_t id) { return fmt::format("{:016x}", id); }

const char* words_for(RankWait::Kind k) {
  switch (k) {
    case RankWait::collective:
      return "collective";
    case RankWait::messages:
      return "send_recv";
    case RankWait::signals:
      return "wait_signal";
    case RankWait::exchange:
      return "split, shrink or the like";
    case RankWait::none:
      break;
  }
  return "";
}

// --- JSON ---

ordered_json json_of(const CallStatus& c) {
  if (c.number == 0) return nullptr;
  ordered_json j = {{"number", c.number}, {"seconds_ago", c.seconds_ago}};
  if (!c.shape) return j;
  const CallShape& s = *c.shape;
  j["call"] = to_string(s);
  if (const char* life = life_call_in(s)) {
    j["collective"] = life;
    return j;
  }
  j["collective"] = name_of(s.coll);
  if (!is_uneven(s.coll)) j["count"] = s.count;
  j["type"] = name_of(s.type);
  if (reduces(s.coll)) j["operation"] = name_of(s.op);
  if (rooted(s.coll)) j["root"] = s.root;
  return j;
}

ordered_json json_of(const RankStatus& r) {
  ordered_json j = {{"rank", r.rank},
                    {"pid", r.pid},
                    {"process", name_of(r.process)},
                    {"left", r.left},
                    {"moving", r.moving},
                    {"started", json_of(r.started)},
                    {"finished", json_of(r.finished)}};
  if (r.wait) {
    j["wait"] = {{"in", words_for(r.wait->kind)}, {"seconds", r.wait->seconds}};
    if (r.wait->peer >= 0) j["wait"]["rank"] = r.wait->peer;
  } else {
    j["wait"] = nullptr;
  }
  return j;
}

ordered_json json_of(const CommunicatorStatus& c) {
  const Verdict v = judge(c);
  ordered_json j = {{"id", hex(c.id)}, {"parent", nullptr}, {"name", c.name},
                    {"size", c.size},  {"error", nullptr},  {"revoked", c.revoked}};
  if (c.parent) j["parent"] = hex(c.parent);
  if (c.error != Result::success) j["error"] = name_of(c.error);
  j["ranks"] = ordered_json::array();
  for (const RankStatus& r : c.ranks) j["ranks"].push_back(json_of(r));
  j["elsewhere"] = c.elsewhere;
  j["joining"] = c.joining;
  j["verdict"] = {{"state", name_of(v.kind)}, {"call", v.call}, {"behind", v.behind}, {"ahead", v.ahead},
                  {"halted", v.halted},       {"gone", v.gone}, {"text", v.text}};
  return j;
}

void print_json(const HostStatus& status) {
  ordered_json j = {{"schema", kSchema},
                    {"host", host_name()},
                    {"communicators", ordered_json::array()},
                    {"problems", status.problems}};
  for (const CommunicatorStatus& c : status.communicators) j["communicators"].push_back(json_of(c));
  // What processes call themselves may be in any encoding.
  fmt::print("{}\n", j.dump(2, ' ', false, ordered_json::error_handler_t::replace));
}

// --- for people ---

std::string ago(double seconds) {
  if (seconds < 120) return fmt::format("{:.0f} s ago", seconds);
  if (seconds < 7200) return fmt::format("{:.0f} min ago", seconds / 60);
  return fmt::format("{:.1f} h ago", seconds / 3600);
}

std::string words_for(const CallStatus& c) {
  if (c.number == 0) return "-";
  return fmt::format("{} {}, {}", c.number, c.shape ? to_string(*c.shape) : "?", ago(c.seconds_ago));
}

std::string words_for(const RankStatus& r) {
  if (r.left) return "has left";
  std::string text = r.moving ? "moving" : "";
  if (r.wait)
    text += fmt::format("{}waits {:.3g} s in {}{}", text.empty() ? "" : ", ", r.wait->seconds,
                        words_for(r.wait->kind),
                        r.wait->peer >= 0 ? fmt::format(" for rank {}", r.wait->peer) : "");
  return text;
}

void print_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const auto& row : rows) {
    std::string line = " ";
    for (size_t i = 0; i < row.size(); ++i) line += fmt::format(" {:<{}} ", row[i], widths[i]);
    fmt::print("{}\n", line.substr(0, line.find_last_not_of(' ') + 1));
  }
}

void print(const CommunicatorStatus& c, const std::vector<CommunicatorStatus>& all) {
  std::string origin;
  if (c.parent) {
    origin = fmt::format(", made of {}, which is gone", hex(c.parent));
    for (const CommunicatorStatus& p : all)
      if (p.id == c.parent) origin = fmt::format(", made of {}", p.name);
  }
  fmt::print("Communicator {} ({}), {} rank{}{}\n", c.name, hex(c.id), c.size, c.size == 1 ? "" : "s",
             origin);
  if (c.revoked)
    fmt::print("  It was revoked.\n");
  else if (c.error != Result::success)
    fmt::print("  It has failed: {}.\n", name_of(c.error));
  std::vector<std::vector<std::string>> rows = {
      {"RANK", "PID", "PROCESS", "LAST STARTED", "LAST FINISHED", ""}};
  for (const RankStatus& r : c.ranks)
    rows.push_back({std::to_string(r.rank), std::to_string(r.pid), std::string(name_of(r.process)),
                    words_for(r.started), words_for(r.finished), words_for(r)});
  print_table(rows);
  fmt::print("  {}\n\n", judge(c).text);
}

void print(const HostStatus& status) {
  for (const CommunicatorStatus& c : status.communicators) print(c, status.communicators);
  if (status.communicators.empty())
    fmt::print("No process of this user shares a communicator of two or more ranks on host {}.\n",
               host_name());
}

}  // namespace

void add_status(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand("status",
                                         "Show where the ranks on this host are in their calls, and who is "
                                         "behind; they may be stopped or stuck");
  const auto options = std::make_shared<StatusOptions>();
  command->add_flag("--json", options->json, fmt::format("Print JSON for scripts, schema {}", kSchema));
  command
      ->add_option("--pid", options->pids, "Look at these processes only; by default at all of this user's")
      ->check(CLI::PositiveNumber);
  command->callback([options, &status] {
    const HostStatus host = read_host_status(options->pids, kApart);
    if (options->json)
      print_json(host);
    else
      print(host);
    for (const std::string& p : host.problems) fmt::print(stderr, "muster status: {}\n", p);
    status = host.problems.empty() ? 0 : 1;
  });
}

}  // namespace muster::tool
