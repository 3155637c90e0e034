// The cards by which ranks introduce themselves.
#include "comm/card.h"
#include "fuzz.h"

using namespace muster;
using namespace muster::fuzz;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes = Input(data, size).rest();
  succeeds_or_throws({Result::internal_error}, [&] {
    const Card card = Card::read(bytes);
    require(card.write() == bytes, "a card is written as it was read");
    for (const auto& [key, value] : card.fields()) {
      require(card.text(key) == value, "a field is found");
      const std::string& name = key;
      succeeds_or_throws({Result::internal_error}, [&] { card.number<int>(name); });
      succeeds_or_throws({Result::internal_error}, [&] { card.number<double>(name); });
      if (succeeds_or_throws({Result::internal_error}, [&] { card.number(name); }))
        require(value.find_first_not_of("0123456789") == value.npos, "a number has digits only");
    }
  });
  // The other way round: texts of any bytes come back.
  Input in(data, size);
  Card card;
  while (!in.empty()) {
    const std::string key(in.bytes(in.byte() % 8));
    card.set(key, std::string(in.bytes(in.byte())));
  }
  require(Card::read(card.write()).fields() == card.fields(), "a card is read as it was written");
  return 0;
}
