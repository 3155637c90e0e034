#include "estimate_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "quantities.h"

namespace muster::tool {
namespace {

std::string gib(double bytes) { return fmt::format("{:.2f} GiB", bytes / (1024.0 * 1024 * 1024)); }

std::string bytes_text(double bytes) {
  return bytes < 1e6   ? fmt::format("{:.4g} kB", bytes / 1e3)
         : bytes < 1e9 ? fmt::format("{:.4g} MB", bytes / 1e6)
                       : fmt::format("{:.4g} GB", bytes / 1e9);
}

std::string seconds_text(double s) { return time_text(s * 1e6); }

std::string plural(int64_t n, const char* what) { return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s"); }

std::string training_text(const Training& t) {
  std::string text = fmt::format("{}, ZeRO {}, {} of micro-batch {} of {} sequences", to_string(t.sizes),
                                 t.zero, plural(t.micro_batches(), "step"), t.micro_batch, t.global_batch);
  if (t.interleave > 1) text += fmt::format(", {} chunks per stage", t.interleave);
  text += fmt::format(", recompute {}", name_of(t.recompute));
  if (t.sizes.tp > 1 && !t.sequence_parallel) text += ", no sequence parallelism";
  if (!t.overlap) text += ", no overlap";
  return text;
}

std::string model_text(const Transformer& m) {
  std::string text = fmt::format("{}: {:.4g} billion parameters", m.name.empty() ? "model" : m.name,
                                 static_cast<double>(total_parameters(m)) / 1e9);
  if (m.experts > 0)
    text += fmt::format(" ({:.4g} of a token)", static_cast<double>(active_parameters(m)) / 1e9);
  text += fmt::format(
      "; {} layers, hidden {}, {} heads, {} key/value heads, feed-forward {}, vocabulary {}, sequence {}",
      m.layers, m.hidden, m.heads, m.kv(), m.inner(), m.vocabulary, m.sequence);
  if (m.experts > 0) text += fmt::format(", {} experts, {} per token", m.experts, m.experts_per_token);
  return text;
}

std::string head_of(const EstimateReport& r) {
  const int64_t devices = least_devices(r.model, r.gpu.memory_bytes(),
                                        r.estimates.empty() ? 2 : r.estimates[0].training.gradient_bytes);
  std::string text = model_text(r.model) + "\n";
  text += fmt::format(
      "state    {} with Adam in mixed precision: at least {} of {:.4g} GiB just to hold it\n",
      bytes_text(total_state(r.model, r.estimates.empty() ? 2 : r.estimates[0].training.gradient_bytes)),
      plural(devices, "device"), r.gpu.memory_gib);
  text += fmt::format("on       {}\n", r.cluster);
  text += fmt::format("GPU      {}: {:.4g} TFLOP/s, of which {:.1f} % while it computes ({})\n", r.gpu.name,
                      r.gpu.peak_tflops, 100 * r.gpu.share, r.gpu.share_source);
  for (const std::string& n : r.notes) text += fmt::format("note     {}\n", n);
  return text;
}

struct Bar {
  const char* name;
  double value;
};

std::vector<Bar> memory_bars(const StageMemory& u) {
  return {{"weights", u.weights}, {"gradients", u.gradients}, {"master copy", u.master},
          {"moments", u.moments}, {"gathered", u.gathered},   {"activations", u.activations}};
}

std::vector<Bar> time_bars(const TrainingTime& t) {
  return {{"computation", t.compute},    {"tensor parallel", t.tensor},     {"context parallel", t.context},
          {"expert parallel", t.expert}, {"pipeline messages", t.pipeline}, {"pipeline idle", t.idle},
          {"data parallel", t.data},     {"optimizer", t.optimizer}};
}

std::string one_text(const EstimateReport& r) {
  const TrainingEstimate& e = r.estimates.front();
  const StageMemory& u = e.memory.use;
  std::string text = fmt::format("layout   {}\n\n", training_text(e.training));
  text += fmt::format("memory of a GPU of stage {}, which needs most\n", e.memory.stage);
  for (const Bar& b : memory_bars(u)) text += fmt::format("  {:<18} {:>12}\n", b.name, gib(b.value));
  text +=
      fmt::format("  {:<18} {:>12}   {:.0f} % of {:.4g} GiB: {}\n\n", "in all", gib(u.total()),
                  100 * u.total() / r.gpu.memory_bytes(), r.gpu.memory_gib, e.fits ? "fits" : "does not fit");
  text += "a step of a GPU of the slowest stage\n";
  text += fmt::format("  {:<4} {:<27} {:<15} {:>6}  {:<16} {:<18} {:>10} {:>8} {:>10} {:>10} {:>10} {:>10}\n",
                      "axis", "what", "collective", "ranks", "slowest link", "algorithm", "of", "calls",
                      "in host", "to hosts", "takes", "exposed");
  for (const Traffic& t : e.traffic)
    text += fmt::format(
        "  {:<4} {:<27} {:<15} {:>6}  {:<16} {:<18} {:>10} {:>8.0f} {:>10} {:>10} {:>10} {:>10}\n", t.axis,
        t.what, t.coll == Coll::broadcast ? "send" : name_of(t.coll), t.ranks, t.link, t.algorithm,
        bytes_text(t.bytes), t.calls, bytes_text(t.near_bytes), bytes_text(t.far_bytes),
        seconds_text(t.seconds), seconds_text(t.exposed));
  if (e.traffic.empty()) text += "  nothing is sent\n";
  text += "\ntime of a step\n";
  for (const Bar& b : time_bars(e.time))
    if (b.value > 0)
      text += fmt::format("  {:<18} {:>12}   {:.1f} %\n", b.name, seconds_text(b.value),
                          100 * b.value / e.time.total());
  text += fmt::format("  {:<18} {:>12}\n\n", "in all", seconds_text(e.time.total()));
  text += fmt::format(
      "reaches  {:.4g} tokens/s; {:.1f} model TFLOP/s per GPU, MFU {:.1f} % ({:.1f} with what is "
      "recomputed)\n",
      e.tokens_per_s, e.model_tflops, 100 * e.mfu, e.hardware_tflops);
  text += fmt::format("check    {:.3f} times the operations of 6 N D, which leaves attention out\n",
                      e.over_six_nd);
  if (e.training.sizes.pp > 1)
    text += fmt::format("idle     {:.1f} % of the pipeline's time\n", 100 * e.idle_fraction);
  text += fmt::format("bound by {}", e.bound);
  if (!e.link_bound.empty())
    text += fmt::format("; of the links by {}, {} of the step not hidden", e.link_bound,
                        seconds_text(e.link_seconds));
  return text + "\n";
}

std::string search_text(const EstimateReport& r) {
  std::string text =
      fmt::format("\n{} of {} fit; the fastest:\n{:<28} {:>4} {:>6} {:>7} {:<10} {:>10} {:>11} {:>7}  {}\n",
                  r.fit, plural(r.possible, "layout"), "layout", "ZeRO", "micro", "chunks", "recompute",
                  "memory", "step", "MFU", "bound by");
  for (const TrainingEstimate& e : r.estimates)
    text += fmt::format("{:<28} {:>4} {:>6} {:>7} {:<10} {:>10} {:>11} {:>5.1f} %  {}{}\n",
                        to_string(e.training.sizes), e.training.zero, e.training.micro_batch,
                        e.training.interleave, name_of(e.training.recompute), gib(e.memory.use.total()),
                        seconds_text(e.time.total()), 100 * e.mfu, e.bound,
                        e.link_bound.empty() ? "" : "; links: " + e.link_bound);
  return text;
}

using Json = nlohmann::ordered_json;

Json json_of(const TrainingEstimate& e) {
  const Training& t = e.training;
  Json j;
  j["layout"] = {
      {"tp", t.sizes.tp}, {"cp", t.sizes.cp}, {"ep", t.sizes.ep}, {"pp", t.sizes.pp}, {"dp", t.sizes.dp}};
  j["zero"] = t.zero;
  j["global_batch"] = t.global_batch;
  j["micro_batch"] = t.micro_batch;
  j["micro_batches"] = t.micro_batches();
  j["interleave"] = t.interleave;
  j["recompute"] = name_of(t.recompute);
  j["sequence_parallel"] = t.sequence_parallel;
  j["overlap"] = t.overlap;
  j["gradient_bytes"] = t.gradient_bytes;
  const StageMemory& u = e.memory.use;
  j["memory"] = {{"stage", e.memory.stage},      {"weights", u.weights}, {"gradients", u.gradients},
                 {"master", u.master},           {"moments", u.moments}, {"gathered", u.gathered},
                 {"activations", u.activations}, {"bytes", u.total()},   {"fits", e.fits}};
  j["traffic"] = Json::array();
  for (const Traffic& r : e.traffic)
    j["traffic"].push_back({{"axis", r.axis},
                            {"what", r.what},
                            {"collective", r.coll == Coll::broadcast ? "send" : name_of(r.coll)},
                            {"ranks", r.ranks},
                            {"link", r.link},
                            {"algorithm", r.algorithm},
                            {"bytes", r.bytes},
                            {"calls", r.calls},
                            {"sent_in_host", r.near_bytes},
                            {"sent_to_hosts", r.far_bytes},
                            {"seconds", r.seconds},
                            {"exposed_seconds", r.exposed}});
  const TrainingTime& s = e.time;
  j["seconds"] = {{"computation", s.compute}, {"tensor", s.tensor},       {"context", s.context},
                  {"expert", s.expert},       {"pipeline", s.pipeline},   {"idle", s.idle},
                  {"data", s.data},           {"optimizer", s.optimizer}, {"step", s.total()}};
  j["idle_fraction"] = e.idle_fraction;
  j["tokens_per_second"] = e.tokens_per_s;
  j["model_tflops_per_gpu"] = e.model_tflops;
  j["hardware_tflops_per_gpu"] = e.hardware_tflops;
  j["mfu"] = e.mfu;
  j["over_6nd"] = e.over_six_nd;
  j["bound"] = e.bound;
  j["link_bound"] = e.link_bound;
  return j;
}

}  // namespace

std::string estimate_text(const EstimateReport& r) {
  return head_of(r) + (r.search ? search_text(r) : one_text(r));
}

std::string estimate_json(const EstimateReport& r) {
  const Transformer& m = r.model;
  Json j;
  j["muster_estimate"] = 1;  // of this layout
  j["model"] = {{"name", m.name},
                {"parameters", total_parameters(m)},
                {"active_parameters", active_parameters(m)},
                {"layers", m.layers},
                {"hidden", m.hidden},
                {"heads", m.heads},
                {"kv_heads", m.kv()},
                {"ffn", m.inner()},
                {"vocabulary", m.vocabulary},
                {"sequence", m.sequence},
                {"experts", m.experts},
                {"state_bytes", total_state(m)},
                {"least_devices", least_devices(m, r.gpu.memory_bytes())}};
  j["gpu"] = {{"name", r.gpu.name},
              {"peak_tflops", r.gpu.peak_tflops},
              {"memory_bytes", r.gpu.memory_bytes()},
              {"share", r.gpu.share},
              {"share_source", r.gpu.share_source}};
  j["cluster"] = r.cluster;
  j["notes"] = r.notes;
  if (r.search) j["search"] = {{"possible", r.possible}, {"fit", r.fit}};
  j["estimates"] = Json::array();
  for (const TrainingEstimate& e : r.estimates) j["estimates"].push_back(json_of(e));
  return j.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string estimate_svg(const EstimateReport& r) {
  static constexpr const char* kColours[] = {"#4c78a8", "#f58518", "#54a24b", "#e45756",
                                             "#72b7b2", "#bab0ac", "#b279a2", "#9d755d"};
  constexpr int kLeft = 230, kWidth = 640, kRow = 26, kTotal = kLeft + kWidth + 130;
  std::string body;
  int y = 30;
  const auto escaped = [](const std::string& text) {
    std::string out;
    for (const char c : text)
      out += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '"' ? "&quot;" : std::string(1, c);
    return out;
  };
  const auto label = [&](int x, int at, const std::string& text, const char* anchor = "start") {
    body += fmt::format(
        "<text x=\"{}\" y=\"{}\" text-anchor=\"{}\" stroke=\"white\" stroke-width=\"3\" "
        "paint-order=\"stroke\">{}</text>\n",
        x, at, anchor, escaped(text));
  };
  const auto chart = [&](const std::string& title, auto bars_of, double limit, auto text_of) {
    label(kLeft, y, title);
    y += 12;
    double most = limit;
    for (const TrainingEstimate& e : r.estimates) {
      double sum = 0;
      for (const Bar& b : bars_of(e)) sum += b.value;
      most = std::max(most, sum);
    }
    const int top = y;
    std::vector<const char*> names;  // of bars, and whether any is there
    std::vector<bool> shown;
    for (const TrainingEstimate& e : r.estimates) {
      label(kLeft - 8, y + 16, fmt::format("{} ZeRO {}", to_string(e.training.sizes), e.training.zero),
            "end");
      double x = kLeft, sum = 0;
      const std::vector<Bar> bars = bars_of(e);
      names.resize(bars.size());
      shown.resize(bars.size());
      for (size_t i = 0; i < bars.size(); ++i) {
        const double w = bars[i].value / most * kWidth;
        names[i] = bars[i].name;
        shown[i] = shown[i] || bars[i].value > 0;
        if (bars[i].value > 0)
          body += fmt::format(
              "<rect x=\"{:.2f}\" y=\"{}\" width=\"{:.2f}\" height=\"{}\" fill=\"{}\"><title>{}: "
              "{}</title></rect>\n",
              x, y, w, kRow - 6, kColours[i], bars[i].name, text_of(bars[i].value));
        x += w;
        sum += bars[i].value;
      }
      label(static_cast<int>(x) + 6, y + 16, text_of(sum));
      y += kRow;
    }
    if (limit > 0) {
      const double x = kLeft + limit / most * kWidth;
      body += fmt::format(
          "<line x1=\"{0:.2f}\" y1=\"{1}\" x2=\"{0:.2f}\" y2=\"{2}\" stroke=\"black\" stroke-dasharray=\"4 "
          "3\">"
          "<title>a GPU's memory: {3}</title></line>\n",
          x, top - 4, y, text_of(limit));
    }
    int x = kLeft;
    y += 6;
    for (size_t i = 0; i < names.size(); ++i) {
      if (!shown[i]) continue;
      const int width = 30 + 7 * static_cast<int>(std::string_view(names[i]).size());
      if (x + width > kTotal) {
        x = kLeft;
        y += 18;
      }
      body += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"10\" height=\"10\" fill=\"{}\"/>\n", x, y,
                          kColours[i]);
      label(x + 14, y + 9, names[i]);
      x += width;
    }
    y += 46;
  };
  chart(
      "memory of a GPU (dashed: what it has)",
      [](const TrainingEstimate& e) { return memory_bars(e.memory.use); }, r.gpu.memory_bytes(), gib);
  chart(
      "time of a step", [](const TrainingEstimate& e) { return time_bars(e.time); }, 0, seconds_text);
  label(kLeft, y - 10, fmt::format("{}, {}", r.model.name.empty() ? "model" : r.model.name, r.cluster));
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" "
             "font-family=\"sans-serif\" "
             "font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
             kTotal, y + 10) +
         body + "</svg>\n";
}

}  // namespace muster::tool
