#include "parallel/pipeline_text.h"

#include <fmt/format.h>

#include <algorithm>

namespace muster {
namespace {

std::string chunk_letters(int chunk) {  // a to z, then aa
  std::string s;
  for (int c = chunk; c >= 0; c = c / 26 - 1) s.insert(s.begin(), static_cast<char>('a' + c % 26));
  return s;
}

int cost_of(const PipelineStep& step, const PipelineCosts& costs) {
  return step.pass == PipelinePass::forward ? costs.forward : costs.backward;
}

}  // namespace

std::string pipeline_label(const PipelineStep& step, bool with_chunk) {
  return fmt::format("{}{}{}", step.pass == PipelinePass::forward ? 'F' : 'B', step.micro_batch, with_chunk ? chunk_letters(step.chunk) : "");
}

std::string text(const PipelineSchedule& schedule) {
  std::string out;
  for (size_t stage = 0; stage < schedule.steps.size(); ++stage) {
    out += fmt::format("stage {}:", stage);
    for (const PipelineStep& step : schedule.steps[stage]) out += " " + pipeline_label(step, schedule.chunks > 1);
    out += "\n";
  }
  return out;
}

std::string drawing(const PipelineSchedule& schedule, const PipelineCosts& costs) {
  const PipelineTiming timing = examine(schedule, costs);
  const PipelineStep longest = {PipelinePass::forward, schedule.micro_batches - 1, schedule.chunks - 1};
  const size_t width = pipeline_label(longest, schedule.chunks > 1).size() + 1;
  const auto cells = static_cast<size_t>(timing.makespan);
  std::string out;
  for (size_t stage = 0; stage < schedule.steps.size(); ++stage) {
    std::string line(cells * width, ' ');
    for (size_t cell = 0; cell < cells; ++cell) line[cell * width] = '.';
    for (size_t i = 0; i < schedule.steps[stage].size(); ++i) {
      const PipelineStep& step = schedule.steps[stage][i];
      const auto cost = static_cast<size_t>(cost_of(step, costs)), begin = static_cast<size_t>(timing.ends[stage][i]) - cost;
      for (size_t c = begin + 1; c < begin + cost; ++c) line[c * width] = '-';
      const std::string name = pipeline_label(step, schedule.chunks > 1);
      std::copy(name.begin(), name.end(), line.begin() + static_cast<ptrdiff_t>(begin * width));
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += fmt::format("{:>3} | {}\n", stage, line);
  }
  return out;
}

std::string svg(const PipelineSchedule& schedule, const PipelineCosts& costs) {
  constexpr int kUnit = 22, kRow = 24, kLeft = 70, kTop = 28;
  constexpr const char* kColors[2][4] = {{"#4c78a8", "#72a0cf", "#9ec3e6", "#c6dcf2"}, {"#54a24b", "#7dbd75", "#a6d5a0", "#cdeac9"}};
  const PipelineTiming timing = examine(schedule, costs);
  const int64_t width = kLeft + timing.makespan * kUnit + 10;
  const int height = kTop + schedule.stages * kRow + 10;
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" font-family=\"sans-serif\" font-size=\"10\">\n"
      "<rect width=\"{}\" height=\"{}\" fill=\"#ffffff\"/>\n"
      "<text x=\"8\" y=\"18\" font-size=\"12\">{} stages, {} micro-batches, {} chunk{}: {:.1f}% idle</text>\n",
      width, height, width, height, schedule.stages, schedule.micro_batches, schedule.chunks, schedule.chunks == 1 ? "" : "s", 100 * timing.idle_share);
  for (size_t stage = 0; stage < schedule.steps.size(); ++stage) {
    const int y = kTop + static_cast<int>(stage) * kRow;
    out += fmt::format("<text x=\"8\" y=\"{}\">stage {}</text>\n", y + 15, stage);
    for (size_t i = 0; i < schedule.steps[stage].size(); ++i) {
      const PipelineStep& step = schedule.steps[stage][i];
      const int cost = cost_of(step, costs);
      const int64_t x = kLeft + (timing.ends[stage][i] - cost) * kUnit;
      out += fmt::format(
          "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\" stroke=\"#ffffff\"/><text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n", x, y,
          cost * kUnit, kRow - 4, kColors[static_cast<size_t>(step.pass)][static_cast<size_t>(step.chunk) % 4], x + cost * kUnit / 2, y + 14, step.micro_batch);
    }
  }
  return out + "</svg>\n";
}

}  // namespace muster
