// Options' values. A line of the input is an option's number, two bytes, and its value.
#include <cstdlib>
#include <set>

#include "base/log_options.h"
#include "fuzz.h"

using namespace muster;
using namespace muster::fuzz;

namespace {

void check(const Options& options, const Option& o) {
  const char* const value = std::getenv(o.name);
  switch (o.type) {
    case OptionType::flag:
      options.flag(o.name);
      break;
    case OptionType::integer:
      options.integer(o.name);
      break;
    case OptionType::size:
      require(options.integer(o.name) >= 0, "a size isn't negative");
      break;
    case OptionType::seconds:
      require(options.seconds(o.name).count() >= 0, "a time isn't negative");
      break;
    case OptionType::text:
      require(!*value || options.text(o.name) == value, "a text is as it was set");
      break;
    default:
      break;
  }
  const bool empty_counts = o.type == OptionType::text_or_none;
  require(!options.is_set(o.name) || *value || empty_counts, "what is set was set");
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto table = option_table();
  std::set<size_t> given;
  for (Input in(data, size); !in.empty();) {
    const size_t number = (in.byte() + size_t{256} * in.byte()) % table.size();
    setenv(table[number].name, std::string(in.line()).c_str(), 1);
    given.insert(number);
  }
  succeeds_or_throws({Result::invalid_usage}, [&] {
    const Options options = Options::from_environment();
    for (const size_t number : given) check(options, table[number]);
    require(Options::from_environment().agreement() == options.agreement(),
            "what must agree is the same again");
    std::vector<OptionNote> notes;
    log_settings(options, notes);
    for (const OptionNote& n : notes) require(!n.name.empty() && !n.text.empty(), "a note says what and why");
  });
  for (const size_t number : given) unsetenv(table[number].name);
  return 0;
}
