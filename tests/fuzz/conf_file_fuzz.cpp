// Files of options.
#include "base/conf_file.h"

#include <set>

#include "fuzz.h"

using namespace muster;
using namespace muster::fuzz;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = Input(data, size).rest();
  const ConfFile file = parse_conf(text);
  std::set<std::string> names;
  std::string again;
  int last = 0;
  for (const ConfFile::Line& line : file.lines) {
    require(line.number > last, "lines are in order");
    require(names.insert(line.name).second, "a name is there once");
    require(text.find(line.value) != text.npos, "a value is as it was written");
    last = line.number;
    again += line.name + "=" + line.value + "\n";
  }
  for (const ConfFile::Problem& p : file.problems) require(p.number > 0 && p.text.size() < 300, "a problem has its line and is short");
  const ConfFile second = parse_conf(again);
  require(second.problems.empty() && second.lines.size() == file.lines.size(), "what was read can be written and read");
  for (size_t i = 0; i < file.lines.size(); ++i)
    require(second.lines[i].name == file.lines[i].name && second.lines[i].value == file.lines[i].value, "and means the same");
  return 0;
}
