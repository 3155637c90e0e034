// What a kernel's PTX says of it without being translated: how many threads of it fit a multiprocessor.
#include <algorithm>
#include <cctype>
#include <string_view>

#include "modules.h"

namespace cuda_sim {
namespace {

bool in_name(char c) { return isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '.'; }

// Where `word` stands by itself from `from` on.
size_t find_word(std::string_view text, std::string_view word, size_t from = 0) {
  for (size_t at = text.find(word, from); at != std::string_view::npos; at = text.find(word, at + 1)) {
    const size_t end = at + word.size();
    if ((at == 0 || !in_name(text[at - 1])) && (end == text.size() || !in_name(text[end]))) return at;
  }
  return std::string_view::npos;
}

long number_at(std::string_view text, size_t* at) {
  long n = 0;
  while (*at < text.size() && isspace(static_cast<unsigned char>(text[*at]))) ++*at;
  for (; *at < text.size() && isdigit(static_cast<unsigned char>(text[*at])); ++*at)
    n = 10 * n + (text[*at] - '0');
  return n;
}

// The product of "512, 1, 1" behind a directive; 0: it isn't there.
long directive(std::string_view header, std::string_view name) {
  size_t at = find_word(header, name);
  if (at == std::string_view::npos) return 0;
  at += name.size();
  long product = std::max(1L, number_at(header, &at));
  while (at < header.size() && header[at] == ',') {
    ++at;
    product *= std::max(1L, number_at(header, &at));
  }
  return product;
}

struct Variable {
  std::string_view name;
  size_t bytes = 0, alignment = 16;
};
// Of ".shared .align 8 .b8 name[2144]", without the first word.
Variable parse_variable(std::string_view text) {
  Variable v;
  size_t at = 0;
  if (const size_t align = text.find(".align"); align != std::string_view::npos) {
    at = align + 6;
    v.alignment = std::max<size_t>(16, static_cast<size_t>(number_at(text, &at)));
  }
  at = text.find('.', at);
  if (at == std::string_view::npos) return v;
  at += 2;  // the type's letter
  v.bytes = static_cast<size_t>(number_at(text, &at)) / 8;
  while (at < text.size() && isspace(static_cast<unsigned char>(text[at]))) ++at;
  const size_t name = at;
  while (at < text.size() && in_name(text[at])) ++at;
  v.name = text.substr(name, at - name);
  while (at < text.size() && text[at] == '[') {
    ++at;
    v.bytes *= static_cast<size_t>(number_at(text, &at));  // none of a variable whose size the launch says
    if (at < text.size()) ++at;
  }
  return v;
}

// Calls f(variable) for those declared in a part of the text.
template <class F>
void for_shared(std::string_view part, F f) {
  constexpr std::string_view kWord = ".shared";
  for (size_t at = find_word(part, kWord); at != std::string_view::npos;
       at = find_word(part, kWord, at + 1)) {
    const size_t begin = at + kWord.size(), end = part.find(';', begin);
    if (end != std::string_view::npos) f(parse_variable(part.substr(begin, end - begin)));
  }
}

}  // namespace

bool describe(const std::string& ptx, const std::string& kernel, PtxKernel* found) {
  const std::string_view all = ptx;
  constexpr std::string_view kEntry = ".entry";
  size_t at = find_word(all, kernel);
  const auto is_definition = [&](size_t name) {
    const size_t last = all.find_last_not_of(" \t\n", name - 1);
    return last != std::string_view::npos && last + 1 >= kEntry.size() &&
           all.substr(last + 1 - kEntry.size(), kEntry.size()) == kEntry;
  };
  while (at != std::string_view::npos && !is_definition(at)) at = find_word(all, kernel, at + 1);
  if (at == std::string_view::npos) return false;
  const size_t body = all.find('{', at), end = std::min(all.find("\n}", body), all.size());
  if (body == std::string_view::npos) return false;
  const std::string_view header = all.substr(at, body - at), inside = all.substr(body, end - body);

  const long by_bound = std::max(directive(header, ".maxntid"), directive(header, ".reqntid"));
  if (by_bound) {
    found->max_threads = static_cast<int>(by_bound);
    const long threads = by_bound * std::max(1L, directive(header, ".minnctapersm"));
    found->registers = static_cast<int>(std::clamp(kRegistersPerSm / threads / 8 * 8, 8L, 255L));
  }
  if (const long most = directive(header, ".maxnreg")) found->registers = static_cast<int>(most);
  size_t shared = 0;
  const auto add = [&](const Variable& v) { shared = round_up(shared, v.alignment) + v.bytes; };
  for_shared(inside, add);
  for_shared(all.substr(0, all.find(kEntry)), [&](const Variable& v) {  // of the module: those that it uses
    if (!v.name.empty() && find_word(inside, v.name) != std::string_view::npos) add(v);
  });
  found->static_shared = static_cast<uint32_t>(round_up(shared, 128));
  return true;
}

}  // namespace cuda_sim
