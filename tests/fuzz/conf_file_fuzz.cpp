// Files of options, and the small readers of typed text.
#include "base/conf_file.h"

#include <algorithm>

#include "base/text.h"
#include "fuzz.h"

using namespace muster;
using namespace muster::fuzz;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = Input(data, size).rest();
  const ConfFile conf = parse_conf(text);
  int before = 0;
  for (const ConfFile::Line& line : conf.lines) {
    require(line.number > before && line.number <= std::count(text.begin(), text.end(), '\n') + 1,
            "lines are in order");
    before = line.number;
    require(!line.name.empty() && trim(line.name) == line.name && trim(line.value) == line.value,
            "blanks don't count");
    require(line.name.find('=') == line.name.npos, "the value begins at the first '='");
    require(std::count_if(conf.lines.begin(), conf.lines.end(),
                          [&](const auto& l) { return l.name == line.name; }) == 1,
            "a name counts once");
    const std::string_view names[] = {"NCCL_DEBUG", "NCCL_SOCKET_IFNAME", line.name};
    require(nearest_name(line.name, names) == line.name || size_t{3} > line.name.size(),
            "the nearest name is the same");
  }
  for (const ConfFile::Problem& p : conf.problems) require(!p.text.empty(), "a problem has a text");

  parse_c_integer(text);
  const std::string shown = printable(text, 64);
  require(shown.size() <= 64 + 3, "what is shown is short");
  for (const char c : shown)
    require(static_cast<unsigned char>(c) >= ' ', "what is shown has no control characters");
  std::string joined;
  for (const std::string_view part : split(text, ',')) joined += std::string(part) + ',';
  require(joined == std::string(text) + ',', "the parts are the whole");
  return 0;
}
