// Options' values. A line of the input is an option's number, two bytes, and its value.
#include <cstdlib>

#include "base/options.h"
#include "fuzz.h"

using namespace muster;
using namespace muster::fuzz;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto table = option_table();
  for (const Option& o : table) unsetenv(o.name);
  for (Input in(data, size); !in.empty();) {
    const size_t number = in.byte() + size_t{256} * in.byte();
    setenv(table[number % table.size()].name, std::string(in.line()).c_str(), 1);
  }
  succeeds_or_throws({Result::invalid_usage}, [&] {
    const Options options = Options::from_environment();
    for (const Option& o : table) {
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
          if (value && *value) require(options.text(o.name) == value, "a text is as it was set");
          break;
        default:
          break;
      }
      const bool empty_counts = o.type == OptionType::text_or_none;
      require(!options.is_set(o.name) || (value && (*value || empty_counts)), "what is set was set");
    }
    require(Options::from_environment().agreement() == options.agreement(),
            "what must agree is the same again");
  });
  return 0;
}
