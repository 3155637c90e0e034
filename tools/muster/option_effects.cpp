#include "option_effects.h"

#include <fmt/format.h>

namespace muster::tool {

const std::string& as_written(const Options& options, std::string_view name) {
  size_t row = 0;
  while (name != option_table()[row].name) ++row;
  return options.values()[row].text;
}

std::string effects_text(const std::vector<OptionEffect>& effects) {
  std::string text;
  for (const OptionEffect& e : effects) {
    text += fmt::format("{:<10} ", text.empty() ? "options" : "");
    text += e.name.empty() ? e.effect + "\n" : fmt::format("{}={}: {}\n", e.name, e.value, e.effect);
  }
  return text;
}

nlohmann::ordered_json json_of(const std::vector<OptionEffect>& effects) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const OptionEffect& e : effects) {
    nlohmann::ordered_json one;
    if (!e.name.empty()) one["name"] = e.name, one["value"] = e.value;
    one["effect"] = e.effect;
    all.push_back(std::move(one));
  }
  return all;
}

}  // namespace muster::tool
