#include "plan_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "plan_run.h"
#include "quantities.h"
#include "speed_findings.h"

namespace muster::tool {
namespace {

std::string links_text(const Links& l) {
  std::string text = fmt::format("{} rank{} on {} host{}", l.spread.ranks, l.spread.ranks == 1 ? "" : "s",
                                 l.spread.hosts, l.spread.hosts == 1 ? "" : "s");
  if (l.spread.per_host > 1)
    text += fmt::format("; inside a host {}: {} ring{} of {:.4g} GB/s together", name_of(l.near),
                        l.near_channels, l.near_channels == 1 ? "" : "s", l.rings);
  if (l.spread.hosts > 1)
    text += fmt::format(
        "; a host's ports: {:.4g} GB/s{}", l.ports,
        l.network == topology::Network::unknown ? "" : fmt::format(" ({})", topology::name_of(l.network)));
  return text + "\n";
}

// What is planned, and with what in mind.
std::string head_text(const PlanReport& report, const std::string& size) {
  const Prediction& p = report.rows[0].prediction;
  return fmt::format("{}{}, {}: ", name_of(p.call.coll), size, name_of(p.call.type)) + links_text(p.links) +
         (report.profile.empty()
              ? ""
              : fmt::format("constants  {}, over those built in\n", printable(report.profile, 200))) +
         effects_text(report.options) + findings_text(report.findings, report.file) + "\n";
}

std::string bound_text(const Prediction& p, const Candidate& c) {
  const Price& price = c.price;
  switch (price.bound) {
    case Bound::launch:
      return "launching the kernels";
    case Bound::latency:
      return p.links.spread.ranks == 1 ? "latency: starting the copy"
                                       : "latency: messages that follow one another";
    case Bound::near_links:
      return fmt::format("{} links inside hosts, {:.4g} GB/s reached", name_of(p.links.near),
                         price.near_gbytes_per_s);
    case Bound::ports:
      return fmt::format("the network ports of a host, {:.4g} GB/s reached", price.far_gbytes_per_s);
    case Bound::channels:
      return fmt::format("the bound on channels: a thread block each, {} here", c.channels);
    case Bound::memory:
      return fmt::format("the GPU's memory, {:.4g} GB/s copied", price.near_gbytes_per_s);
  }
  return "";
}

std::string parts_text(const Price& p) {
  return fmt::format("launch {} + latency {} + transfer {} + ramp {}", time_text(p.launch_us),
                     time_text(p.latency_us), time_text(p.transfer_us), time_text(p.ramp_us));
}

std::string others_text(const Prediction& p) {
  const Candidate* const best = p.best();
  std::string text = fmt::format("\n{:<18} {:<8} {:>12} {:>10} {:>10}   why not\n", "others", "protocol",
                                 "time", "algbw", "busbw");
  for (const Candidate& c : p.candidates) {
    if (&c == best) continue;
    const double t = c.price.us();
    const std::string why =
        c.obstacle.empty() ? fmt::format("{:.3g} times as long; {}", t / best->price.us(), bound_text(p, c))
                           : c.obstacle;
    text += fmt::format("{:<18} {:<8} {:>12} {:>10.2f} {:>10.2f}   {}\n", c.algorithm, name_of(c.protocol),
                        time_text(t), p.algbw(t), p.busbw(t), why);
  }
  return text;
}

// What a plan's programs do on the links when they are run, beside what formulas say of it.
std::string simulation_text(const Prediction& p, const Simulation& s) {
  const Price& price = p.best()->price;
  const double us = price.us();
  std::string text = fmt::format(
      "\nsimulated  {} ({:+.1f} % of the price, {:+.1f} % of it without ramp), {:.2f} GB/s algbw, {:.2f} "
      "GB/s busbw; {} steps run{}\n",
      time_text(s.time_us), 100 * (s.time_us / us - 1), 100 * (s.time_us / (us - price.ramp_us) - 1),
      p.algbw(s.time_us), p.busbw(s.time_us), s.steps,
      !s.extrapolated                     ? ""
      : p.links.spread.ranks > kMostExact ? ", of two smaller clusters of the same hosts"
                                          : ", the tiles after them taken to go on alike");
  std::vector<const Simulation::Use*> uses;
  for (const Simulation::Use& u : s.uses) uses.push_back(&u);
  std::stable_sort(uses.begin(), uses.end(),
                   [](const auto* a, const auto* b) { return a->utilisation > b->utilisation; });
  constexpr size_t kShown = 12;
  text += fmt::format("{:<44} {:>10} {:>14} {:>6}\n", "busiest links", "GB/s", "bytes", "used");
  for (size_t i = 0; i < std::min(uses.size(), kShown); ++i)
    text += fmt::format("{:<44} {:>10.4g} {:>14.0f} {:>4.0f} %\n", uses[i]->resource.name,
                        uses[i]->resource.gb_per_s, uses[i]->bytes, 100 * uses[i]->utilisation);
  if (uses.size() > kShown) text += fmt::format("... and {} more\n", uses.size() - kShown);
  return text;
}

nlohmann::ordered_json json_of(const Candidate& c, const Prediction& p) {
  const double us = c.price.us();
  nlohmann::ordered_json j;
  j["algorithm"] = c.algorithm;
  j["protocol"] = name_of(c.protocol);
  j["channels"] = c.channels;
  j["chunk_bytes"] = c.chunk_bytes;
  j["microseconds"] = us;
  j["parts"] = {{"launch", c.price.launch_us},
                {"latency", c.price.latency_us},
                {"transfer", c.price.transfer_us},
                {"ramp", c.price.ramp_us}};
  j["algbw"] = p.algbw(us);
  j["busbw"] = p.busbw(us);
  if (!c.obstacle.empty()) j["obstacle"] = c.obstacle;
  return j;
}

nlohmann::ordered_json json_of(const Simulation& s, const Prediction& p) {
  nlohmann::ordered_json j;
  j["microseconds"] = s.time_us;
  j["algbw"] = p.algbw(s.time_us);
  j["busbw"] = p.busbw(s.time_us);
  j["steps"] = s.steps;
  j["extrapolated"] = s.extrapolated;
  j["links"] = nlohmann::ordered_json::array();
  for (const Simulation::Use& u : s.uses)
    j["links"].push_back({{"name", u.resource.name},
                          {"GB_per_second", u.resource.gb_per_s},
                          {"bytes", u.bytes},
                          {"used", u.utilisation}});
  return j;
}

}  // namespace

std::string reason_for_none(const Prediction& p) {
  if (p.candidates.empty()) return "no algorithm of GPUs is known for it";
  // What was asked for and can't be had says more than what wasn't.
  const auto own =
      std::find_if(p.candidates.begin(), p.candidates.end(), [](const Candidate& c) { return !c.unwanted; });
  const Candidate& c = own == p.candidates.end() ? p.candidates.front() : *own;
  return fmt::format("no algorithm serves. {} by {}: {}", c.algorithm, name_of(c.protocol), c.obstacle);
}

std::string detail_text(const PlanReport& report) {
  const Prediction& p = report.rows[0].prediction;
  std::string text = head_text(report, fmt::format(" of {}B", size_text(report.rows[0].bytes)));
  const Candidate* const best = p.best();
  if (!best) {
    text += "no algorithm serves:\n";
    for (const Candidate& c : p.candidates)
      text += fmt::format("{:<18} {:<8} {}\n", c.algorithm, name_of(c.protocol), c.obstacle);
    return text;
  }
  if (p.links.spread.ranks == 1)
    text +=
        "chosen     copy: one rank's result is its own input, copied where the buffers differ, and nothing "
        "where they don't\n";
  else
    text += fmt::format("chosen     {} ({}), {}, {} channel{}, messages of up to {}B\n", best->algorithm,
                        best->known->idea, name_of(best->protocol), best->channels,
                        best->channels == 1 ? "" : "s", size_text(best->chunk_bytes));
  const double us = best->price.us();
  text += fmt::format("takes      {}: {}\n", time_text(us), parts_text(best->price));
  text += fmt::format("bandwidth  {:.2f} GB/s algbw, {:.2f} GB/s busbw\n", p.algbw(us), p.busbw(us));
  text += fmt::format("bound by   {}\n", bound_text(p, *best));
  text += fmt::format("roof       {:.2f} GB/s algbw, {:.2f} GB/s busbw, {}, by {}; {:.0f} % of it reached\n",
                      p.algbw(p.roof.us), p.busbw(p.roof.us), time_text(p.roof.us), p.roof.what,
                      us > 0 ? 100 * p.roof.us / us : 0);
  if (p.candidates.size() > 1) text += others_text(p);
  if (report.simulation) text += simulation_text(p, *report.simulation);
  return text;
}

std::string table_text(const PlanReport& report) {
  std::string text = head_text(report, "");
  text += fmt::format("{:>8}  {:<18} {:<8} {:>8} {:>12} {:>10} {:>10}  {}\n", "size", "algorithm", "protocol",
                      "channels", "time", "algbw", "busbw", "");
  std::string before;
  for (const SizeRow& r : report.rows) {
    const Candidate* const c = r.prediction.best();
    if (!c) {
      text += fmt::format("{:>8}  {}\n", size_text(r.bytes), reason_for_none(r.prediction));
      before = "none";
      continue;
    }
    const std::string now = fmt::format("{} {}", c->algorithm, name_of(c->protocol));
    const double t = c->price.us();
    text += fmt::format("{:>8}  {:<18} {:<8} {:>8} {:>12} {:>10.2f} {:>10.2f}  {}\n", size_text(r.bytes),
                        c->algorithm, name_of(c->protocol), c->channels, time_text(t), r.prediction.algbw(t),
                        r.prediction.busbw(t), !before.empty() && now != before ? "<- switches" : "");
    before = now;
  }
  return text;
}

std::string json_text(const PlanReport& report) {
  nlohmann::ordered_json j;
  j["muster_plan"] = 1;  // of this layout
  const Prediction& first = report.rows.front().prediction;
  j["collective"] = name_of(first.call.coll);
  j["type"] = name_of(first.call.type);
  j["ranks"] = first.links.spread.ranks;
  j["hosts"] = first.links.spread.hosts;
  j["tuning_profile"] = report.profile;
  j["options"] = json_of(report.options);
  j["findings"] = nlohmann::ordered_json::array();
  for (const topology::Finding& f : report.findings)
    j["findings"].push_back({{"severity", topology::name_of(f.severity)},
                             {"id", f.id},
                             {"where", f.where},
                             {"text", f.text},
                             {"remedy", f.remedy}});
  for (const SizeRow& r : report.rows) {
    nlohmann::ordered_json size;
    size["bytes"] = r.bytes;
    size["roof_microseconds"] = r.prediction.roof.us;
    size["roof"] = r.prediction.roof.what;
    size["candidates"] = nlohmann::ordered_json::array();  // the first is chosen, if it has no obstacle
    for (const Candidate& c : r.prediction.candidates) size["candidates"].push_back(json_of(c, r.prediction));
    j["sizes"].push_back(std::move(size));
  }
  if (report.simulation) j["simulation"] = json_of(*report.simulation, first);
  return j.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string rings_text(const Rings& rings) {
  if (rings.channels.empty() || rings.channels[0].ranks.size() < 2) return "no ring: there is one rank\n";
  std::string text = fmt::format("{} ring{}, {:.4g} GB/s together; farthest hop inside hosts {}",
                                 rings.channels.size(), rings.channels.size() == 1 ? "" : "s",
                                 rings.gbytes_per_s(), topology::name_of(rings.inside));
  text += rings.fallback ? "; none found on the links: in the order of ranks\n" : "\n";
  constexpr size_t kMostShown = 64;
  for (size_t c = 0; c < rings.channels.size(); ++c) {
    const std::vector<int>& order = rings.channels[c].ranks;
    const bool cut = order.size() > kMostShown;
    text += fmt::format(
        "{:>4}  {:>8.4g} GB/s  {}{}\n", c, rings.channels[c].gbytes_per_s,
        fmt::join(order.begin(),
                  order.begin() + static_cast<std::ptrdiff_t>(std::min(order.size(), kMostShown)), " "),
        cut ? fmt::format(" ... ({} ranks)", order.size()) : "");
  }
  return text;
}

}  // namespace muster::tool
