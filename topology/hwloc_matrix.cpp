#include "topology/hwloc_matrix.h"

#include <charconv>

#include "base/text.h"

namespace muster::topology {
namespace {

constexpr int64_t kMostObjects = 4096;

template <class F>
void for_each_word(pugi::xml_node matrix, const char* tag, F f) {
  for (const pugi::xml_node part : matrix.children(tag))
    for (const std::string_view word : split(part.child_value(), ' '))
      if (const std::string_view w = trim(word); !w.empty()) f(part, w);
}

template <class T>
T number(const XmlDocument& xml, pugi::xml_node part, std::string_view word) {
  T v = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), v);
  if (error != std::errc() || end != word.data() + word.size())
    xml.refuse(part, "\"{}\" is no whole number", printable(word, 40));
  return v;
}

HwlocMatrix read(const XmlDocument& xml, pugi::xml_node n) {
  HwlocMatrix m;
  m.name = printable(xml.text(n, "name").value_or(""), 80);
  m.element = n;
  m.by_os_index = xml.text(n, "indexing").value_or("gp") == "os";
  const std::string type(xml.text(n, "type").value_or(""));
  const auto count = xml.integer(n, "nbobjs", 1, kMostObjects);
  if (!count) xml.refuse(n, "attribute 'nbobjs' is missing");
  const auto size = static_cast<size_t>(*count);
  for_each_word(n, "indexes", [&](pugi::xml_node part, std::string_view word) {
    const size_t colon = word.rfind(':');
    if (m.objects.size() >= size) xml.refuse(part, "more than the {} indexes that nbobjs says", size);
    m.types.emplace_back(colon == word.npos ? std::string_view(type) : word.substr(0, colon));
    m.objects.push_back(number<int64_t>(xml, part, colon == word.npos ? word : word.substr(colon + 1)));
  });
  for_each_word(n, "u64values", [&](pugi::xml_node part, std::string_view word) {
    if (m.values.size() >= size * size)
      xml.refuse(part, "more than the {} values that nbobjs says", size * size);
    m.values.push_back(number<uint64_t>(xml, part, word));
  });
  if (m.objects.size() != size) xml.refuse(n, "{} indexes, and nbobjs says {}", m.objects.size(), size);
  if (m.values.size() != size * size)
    xml.refuse(n, "{} values, and {} objects need {}", m.values.size(), size, size * size);
  return m;
}

}  // namespace

std::vector<HwlocMatrix> read_hwloc_matrices(const XmlDocument& document) {
  std::vector<HwlocMatrix> all;
  for (const pugi::xml_node n : document.root().children())
    if (const std::string_view tag = n.name(); tag == "distances2" || tag == "distances2hetero")
      all.push_back(read(document, n));
  return all;
}

}  // namespace muster::topology
