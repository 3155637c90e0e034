#include <nlohmann/json.hpp>

#include "base/error.h"
#include "facts_json.h"

namespace muster::doctor {

std::string to_text(const Facts& f) {
  return nlohmann::json(f).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Facts facts_from_text(const std::string& text) {
  try {
    return nlohmann::json::parse(text).get<Facts>();
  } catch (const nlohmann::json::exception& e) {
    fail(Result::invalid_argument, "what a rank says of its host can't be read: {}", e.what());
  }
}

}  // namespace muster::doctor
