#include "comm/card.h"

#include "bootstrap/wire.h"

namespace muster {

const std::string& Card::text(const std::string& key) const {
  const auto it = fields_.find(key);
  if (it == fields_.end()) fail(Result::internal_error, "a rank's introduction lacks {}", key);
  return it->second;
}

std::string Card::write() const {
  Writer w;
  for (const auto& [key, value] : fields_) w.text(key).text(value);
  return w.take();
}

Card Card::read(std::string_view bytes) {
  Card c;
  Reader r(bytes);
  while (r.ok() && !r.at_end()) {
    std::string key = r.text();
    c.fields_[std::move(key)] = r.text();
  }
  if (!r.ok() || c.write() != bytes)
    fail(Result::internal_error, "a rank's introduction of {} bytes is garbled", bytes.size());
  return c;
}

}  // namespace muster
