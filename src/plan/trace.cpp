#include "plan/trace.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <utility>

namespace muster {

std::string chrome_trace(const Simulation& s, const StepText& text_of) {
  using nlohmann::json;
  json events = json::array();
  std::set<std::pair<int, int>> threads;
  for (const StepRecord& r : s.log) threads.insert({r.rank, r.channel});
  int rank = -1;
  for (const auto& [process, thread] : threads) {
    if (process != rank) {
      rank = process;
      events.push_back({{"ph", "M"},
                        {"pid", rank},
                        {"name", "process_name"},
                        {"args", {{"name", fmt::format("rank {}", rank)}}}});
      events.push_back(
          {{"ph", "M"}, {"pid", rank}, {"name", "process_sort_index"}, {"args", {{"sort_index", rank}}}});
    }
    events.push_back({{"ph", "M"},
                      {"pid", process},
                      {"tid", thread},
                      {"name", "thread_name"},
                      {"args", {{"name", fmt::format("channel {}", thread)}}}});
  }
  for (const StepRecord& r : s.log) {
    const std::string name = text_of ? text_of(r) : "";
    events.push_back({{"ph", "X"},
                      {"pid", r.rank},
                      {"tid", r.channel},
                      {"name", name.empty() ? fmt::format("step {}", r.step) : name},
                      {"ts", r.begin_us},
                      {"dur", r.end_us - r.begin_us},
                      {"args", {{"loop", r.loop}, {"step", r.step}, {"tile", r.tile}, {"bytes", r.bytes}}}});
  }
  return json{{"displayTimeUnit", "ns"}, {"traceEvents", std::move(events)}}.dump();
}

}  // namespace muster
