#include "topology/smi_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "topology/cpu_set.h"

namespace muster::topology {
namespace {

struct Word {
  std::string text;
  int line = 0, column = 0;
  int tabs = 0;  // before it in its line
};
using Words = std::vector<Word>;

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '|' || c == '\v' || c == '\f'; }

// Bytes at text[at] that are no part of a word: a blank, one of a web page (U+00A0), or a terminal's escape
// sequence, which may also stand within a word. `*separates` says which.
size_t not_text(std::string_view text, size_t at, bool* separates) {
  *separates = true;
  if (is_blank(text[at])) return 1;
  if (text.substr(at).starts_with("\xc2\xa0")) return 2;
  *separates = false;
  if (text[at] != '\x1b') return 0;
  size_t end = at + 1;
  if (end < text.size() && text[end] == '[') {
    ++end;
    while (end < text.size() && !(text[end] >= '@' && text[end] <= '~')) ++end;
  }
  return std::min(end + 1, text.size()) - at;
}

Words words_of(std::string_view text, int line) {
  Words words;
  Word word{"", line, 0, 0};
  int tabs = 0;
  const auto finish = [&] {
    if (!word.text.empty()) words.push_back(word);
    word.text.clear();
  };
  for (size_t i = 0; i < text.size();) {
    bool separates = false;
    if (const size_t n = not_text(text, i, &separates)) {
      if (separates) finish();
      tabs += text[i] == '\t';
      i += n;
      continue;
    }
    if (word.text.empty()) word.column = static_cast<int>(i) + 1, word.tabs = tabs;
    word.text += text[i++];
  }
  finish();
  return words;
}

// A line drawn below a table's head, as Markdown does ("|---|:---:|").
bool is_rule(const Words& w) {
  return std::all_of(w.begin(), w.end(), [](const Word& x) {
    return x.text.size() > 1 && x.text.find_first_not_of("-=+:") == x.text.npos;
  });
}

bool is_identifier(std::string_view text) {
  const auto letter = [](char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); };
  return !text.empty() && letter(text[0]) && std::all_of(text.begin(), text.end(), [&](char c) {
    return letter(c) || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
  });
}

bool is_p2p_status(std::string_view t) {
  constexpr std::array<std::string_view, 8> kStatuses = {"OK", "CNS", "GNS", "TNS", "NS", "DR", "U", "NRL"};
  return std::find(kStatuses.begin(), kStatuses.end(), t) != kStatuses.end();
}

// What rocm-smi's tables of weights, hops, kinds of link, access and bandwidth have.
bool is_rocm(std::string_view t) {
  if (t == "XGMI" || t == "PCIE" || t == "True" || t == "False") return true;
  return t.find_first_not_of("0123456789-") == t.npos && t[0] >= '0' && t[0] <= '9';
}

bool is_cell(std::string_view t) { return SmiCell::parse(t).known(); }
bool is_cell_like(std::string_view t) { return is_cell(t) || is_p2p_status(t) || is_rocm(t) || t == "N/A"; }

// "0-15,32-47"; "N/A" is the empty list. Nothing for anything else.
std::optional<std::vector<int>> parse_list(std::string_view text) {
  return text == "N/A" ? std::vector<int>{} : parse_cpu_list(text);
}

enum class Affinity : uint8_t { cpu, numa, gpu_numa };

struct Header {
  Words devices;
  std::vector<Affinity> affinities;
};

// A line of nothing but names of devices, the first of them a GPU, and what else stands in the head of the
// table.
std::optional<Header> parse_header(const Words& w) {
  if (w.empty() || !numbered(w[0].text, "GPU")) return std::nullopt;
  Header h;
  const auto is = [&](size_t i, std::string_view text) { return i < w.size() && w[i].text == text; };
  for (size_t i = 0; i < w.size(); ++i) {
    if (is(i, "CPU") && is(i + 1, "Affinity")) {
      h.affinities.push_back(Affinity::cpu);
      i += 1;
    } else if (is(i, "NUMA") && is(i + 1, "Affinity")) {
      h.affinities.push_back(Affinity::numa);
      i += 1;
    } else if (is(i, "GPU") && is(i + 1, "NUMA") && is(i + 2, "ID")) {
      h.affinities.push_back(Affinity::gpu_numa);
      i += 2;
    } else if (is_identifier(w[i].text) && !is_cell_like(w[i].text) && h.affinities.empty()) {
      h.devices.push_back(w[i]);
    } else {
      return std::nullopt;
    }
  }
  return h;
}

// Appends the next line of a wrapped one. A terminal also breaks within words: where the two halves are none
// and the whole is one, they belong together.
template <class IsWord>
void append(Words* line, const Words& next, IsWord is_word) {
  size_t from = 0;
  if (!line->empty() && !next.empty()) {
    const std::string whole = line->back().text + next[0].text;
    if (is_word(whole) && !(is_word(line->back().text) && is_word(next[0].text))) {
      line->back().text = whole;
      from = 1;
    }
  }
  line->insert(line->end(), next.begin() + static_cast<std::ptrdiff_t>(from), next.end());
}

bool is_header_word(std::string_view t) {
  return numbered(t, "GPU") || numbered(t, "NIC") || numbered(t, "mlx5_") || t == "CPU" || t == "NUMA" ||
         t == "GPU" || t == "Affinity" || t == "ID";
}

bool is_affinity(std::string_view t) { return t == "N/A" || t.find_first_not_of("0123456789-,") == t.npos; }

bool is_whole_list(std::string_view t) {
  return is_affinity(t) && t.front() != ',' && t.front() != '-' && t.back() != ',' && t.back() != '-';
}

class SmiTableReader {
 public:
  SmiTableReader(std::string_view text, const std::string& name) {
    table_.name = name;
    if (text.size() > kMostSmiBytes)
      fail(Result::invalid_argument,
           "{} has {} bytes, and {} are the most that is read as a table of nvidia-smi", name, text.size(),
           kMostSmiBytes);
    int number = 0;
    for (const std::string_view line : split(text, '\n')) {
      lines_.push_back(words_of(line, ++number));
      if (is_rule(lines_.back())) lines_.back().clear();
    }
  }

  SmiTable read() {
    std::string other;  // what is there that looks like one
    int other_line = 0;
    size_t after = 0;
    for (size_t at = 0; at < lines_.size(); ++at) {
      size_t first_row = 0;
      const auto header = header_at(at, &first_row);
      if (!header) continue;
      size_t end = first_row;
      const std::vector<Words> rows = rows_from(&end, *header);
      const std::string_view kind = look_alike(rows, header->devices.size());
      if (kind.empty()) {
        build(*header, rows);
        after = end;
        break;
      }
      if (other.empty()) other = kind, other_line = lines_[at][0].line;
      at = end - 1;
    }
    if (after == 0) refuse(other, other_line);
    for (size_t at = after; at < lines_.size(); ++at) {
      size_t first_row = 0;
      const auto header = header_at(at, &first_row);
      if (!header) continue;
      size_t end = first_row;
      const std::string_view kind = look_alike(rows_from(&end, *header), header->devices.size());
      note(
          "smi-other-table", lines_[at][0],
          fmt::format("another table, {}, isn't read", kind.empty() ? "of nvidia-smi topo -m as well" : kind),
          "give it as a file of its own");
      at = end - 1;
    }
    read_legend();
    return std::move(table_);
  }

 private:
  [[noreturn]] void refuse(std::string_view other, int line) const {
    if (!other.empty())
      fail(Result::invalid_argument,
           "{}:{}:1: this table is {}: it doesn't say by what devices are joined. Give the output of "
           "nvidia-smi topo -m",
           table_.name, line, other);
    fail(Result::invalid_argument,
         "{}:1:1: there is no table of nvidia-smi topo -m: no line 'GPU0 GPU1 ...' with lines 'GPU0 X ...' "
         "after it",
         table_.name);
  }

  void found(Severity severity, std::string_view id, int line, int column, std::string text,
             std::string remedy) {
    table_.found({severity, std::string(id), fmt::format("line {}, column {}", line, column), std::move(text),
                  std::move(remedy)});
  }
  void note(std::string_view id, const Word& w, std::string text, std::string remedy) {
    found(Severity::note, id, w.line, w.column, std::move(text), std::move(remedy));
  }
  void warn(std::string_view id, const Word& w, std::string text, std::string remedy) {
    found(Severity::warning, id, w.line, w.column, std::move(text), std::move(remedy));
  }

  // A row begins with a device and how it reaches another.
  static bool is_row(const Words& w) {
    return w.size() > 1 && is_identifier(w[0].text) && !is_cell_like(w[0].text) && is_cell_like(w[1].text);
  }

  static bool has(const Header& h, std::string_view label) {
    return std::any_of(h.devices.begin(), h.devices.end(), [&](const Word& d) { return d.text == label; });
  }
  // Of a device without a column: other text than a table's would have to look much like one.
  static bool is_row_of_more(const Words& w, const Header& h) {
    return w.size() > h.devices.size() &&
           std::all_of(w.begin() + 1, w.begin() + 1 + static_cast<std::ptrdiff_t>(h.devices.size()),
                       [](const Word& x) { return is_cell(x.text); });
  }

  std::optional<Header> header_at(size_t at, size_t* first_row) const {
    constexpr size_t kMostWrapped = 16;  // lines of one header
    if (lines_[at].empty() || !numbered(lines_[at][0].text, "GPU")) return std::nullopt;
    Words all;
    for (size_t i = at; i < lines_.size() && i < at + kMostWrapped; ++i) {
      if (lines_[i].empty() || is_row(lines_[i])) {
        if (i == at) return std::nullopt;
        size_t row = i;
        while (row < lines_.size() && lines_[row].empty()) ++row;
        if (row == lines_.size() || !is_row(lines_[row])) return std::nullopt;
        const auto header = parse_header(all);
        // What is joined by a class but is no device of the table begins something else.
        if (!header || !has(*header, lines_[row][0].text)) return std::nullopt;
        *first_row = row;
        return header;
      }
      append(&all, lines_[i], is_header_word);
    }
    return std::nullopt;
  }

  // The rows from line *at on, which is then the line behind them.
  std::vector<Words> rows_from(size_t* at, const Header& header) const {
    const size_t whole = 1 + header.devices.size();
    std::set<std::string> seen;
    std::vector<Words> rows;
    size_t end = *at;
    for (size_t i = *at; i < lines_.size(); ++i) {
      const Words& w = lines_[i];
      if (w.empty()) continue;  // blank lines between rows
      if (is_row(w) && (has(header, w[0].text) || is_row_of_more(w, header))) {
        if (!seen.insert(w[0].text).second) break;  // of the next table
        rows.push_back(w);
      } else if (!rows.empty() && end == i && rows.back().size() < whole + header.affinities.size() &&
                 std::all_of(w.begin(), w.end(),
                             [&](const Word& x) { return continues(rows.back(), x, &x == &w[0]); })) {
        append(&rows.back(), w, [&](std::string_view t) {
          return rows.back().size() <= whole ? is_cell(t) : is_whole_list(t);
        });
      } else {
        break;
      }
      end = i + 1;
    }
    *at = end;
    return rows;
  }
  static bool continues(const Words& row, const Word& w, bool first) {
    return is_cell(w.text) || is_affinity(w.text) || (first && is_cell(row.back().text + w.text));
  }

  // Empty if the rows are those of nvidia-smi topo -m.
  static std::string_view look_alike(const std::vector<Words>& rows, size_t columns) {
    bool p2p = false, rocm = false;
    for (const Words& row : rows)
      for (size_t i = 1; i < row.size() && i <= columns; ++i) {
        const SmiCell c = SmiCell::parse(row[i].text);
        if (c.known() && c.path_class != PathClass::loc) return {};
        p2p = p2p || is_p2p_status(row[i].text);
        rocm = rocm || is_rocm(row[i].text);
      }
    return p2p    ? "that of nvidia-smi topo -p2p, of what GPUs may do with each other"
           : rocm ? "one of rocm-smi, of AMD GPUs"
                  : std::string_view{};
  }

  int device_of(const std::string& label) const {
    const auto i = std::find_if(table_.devices.begin(), table_.devices.end(),
                                [&](const SmiDevice& d) { return d.label == label; });
    return i == table_.devices.end() ? kNone : static_cast<int>(i - table_.devices.begin());
  }

  void add_device(const Word& label) {
    if (device_of(label.text) != kNone)
      fail(Result::invalid_argument, "{}:{}:{}: {} is there twice", table_.name, label.line, label.column,
           label.text);
    if (table_.size() == kMostSmiDevices)
      fail(Result::invalid_argument, "{}:{}:{}: more than {} devices in one host", table_.name, label.line,
           label.column, kMostSmiDevices);
    SmiDevice d{.label = label.text, .name = label.text};
    if (const auto index = numbered(label.text, "GPU")) d.gpu = true, d.index = *index;
    table_.devices.push_back(std::move(d));
  }

  void build(const Header& header, const std::vector<Words>& rows) {
    for (const Word& label : header.devices) add_device(label);
    std::vector<std::string> no_column, no_row;
    for (const Words& row : rows) {
      if (device_of(row[0].text) != kNone) continue;
      add_device(row[0]);
      no_column.push_back(row[0].text);
    }
    table_.cells.resize(table_.size() * table_.size());
    for (const Words& row : rows) read_row(header, row);
    for (const SmiDevice& d : table_.devices)
      if (d.line == 0) no_row.push_back(d.label);
    incomplete(no_column, "they have a row and no column");
    incomplete(no_row, "they have a column and no row");
  }

  void incomplete(const std::vector<std::string>& devices, std::string text) {
    if (!devices.empty())
      table_.found({Severity::note, "smi-incomplete", fmt::to_string(fmt::join(devices, ", ")),
                    std::move(text), "paste the whole table"});
  }

  void read_row(const Header& header, const Words& row) {
    const size_t columns = header.devices.size();
    const auto me = static_cast<size_t>(device_of(row[0].text));
    SmiDevice& device = table_.devices[me];
    device.line = row[0].line;

    // Cells stand in order; where some are missing tabs tell which.
    std::vector<const Word*> cells(columns, nullptr);
    std::vector<const Word*> rest;
    for (size_t i = 1; i < row.size(); ++i)
      if (i <= columns)
        cells[i - 1] = &row[i];
      else
        rest.push_back(&row[i]);
    const auto diagonal_fits = [&] { return me >= columns || !cells[me] || cells[me]->text == "X"; };
    if (!diagonal_fits() && row.back().tabs > 0) {
      std::map<int, size_t> column_of;
      for (size_t c = 0; c < columns; ++c) column_of[header.devices[c].tabs] = c;
      std::fill(cells.begin(), cells.end(), nullptr);
      rest.clear();
      for (size_t i = 1; i < row.size(); ++i)
        if (const auto c = column_of.find(row[i].tabs); c != column_of.end())
          cells[c->second] = &row[i];
        else
          rest.push_back(&row[i]);
    }
    if (!diagonal_fits()) {
      warn("smi-unreadable", row[0],
           fmt::format("the row of {} has '{}' where it meets itself, not X: cells are missing or too many, "
                       "so it isn't read",
                       device.label, cells[me]->text),
           "paste the whole table");
      return;
    }
    size_t missing = 0;
    for (size_t c = 0; c < columns; ++c) {
      if (!cells[c]) {
        ++missing;
        continue;
      }
      SmiCell cell = SmiCell::parse(cells[c]->text);
      const SmiDevice& other = table_.devices[c];
      const bool fits = (cell.path_class == PathClass::loc) == (c == me) &&
                        (cell.path_class != PathClass::nvl || (device.gpu && other.gpu));
      if (!cell.known() || !fits) {
        warn("smi-unreadable", *cells[c],
             fmt::format("'{}' says nothing of how {} reaches {}", printable(cells[c]->text, 20),
                         device.label, other.label),
             "");
        continue;
      }
      cell.line = cells[c]->line;
      cell.column = cells[c]->column;
      table_.cell(me, c) = cell;
    }
    if (missing > 0)
      note("smi-incomplete", row[0], fmt::format("the row of {} has {} cells too few", device.label, missing),
           "paste the whole table");
    read_affinities(header, rest, &device);
  }

  void read_affinities(const Header& header, const std::vector<const Word*>& words, SmiDevice* device) {
    if (words.size() > header.affinities.size())
      warn("smi-incomplete", *words[header.affinities.size()],
           fmt::format("the row of {} has {} cells more than there are columns", device->label,
                       words.size() - header.affinities.size()),
           "paste the whole table");
    for (size_t i = 0; i < words.size() && i < header.affinities.size(); ++i) {
      const auto list = parse_list(words[i]->text);
      const Affinity what = header.affinities[i];
      if (!list || (what == Affinity::gpu_numa && list->size() > 1)) {
        warn("smi-unreadable", *words[i],
             fmt::format("'{}' is no list of {} near to {}", printable(words[i]->text, 40),
                         what == Affinity::cpu ? "CPUs" : "NUMA nodes", device->label),
             "");
        continue;
      }
      if (what == Affinity::cpu) device->cpus = *list;
      if (what == Affinity::numa) device->numas = *list;
      if (what == Affinity::gpu_numa && !list->empty()) device->memory_numa = list->front();
    }
  }

  // "NIC0: mlx5_0", anywhere.
  void read_legend() {
    std::set<std::string> named;
    for (const Words& w : lines_) {
      if (w.empty() || w.size() > 2) continue;
      const std::string line = w.size() == 2 ? w[0].text + w[1].text : w[0].text;
      const size_t colon = line.find(':');
      if (colon == line.npos || !numbered(line.substr(0, colon), "NIC") || colon + 1 == line.size()) continue;
      const std::string label = line.substr(0, colon), name = printable(line.substr(colon + 1), 64);
      const int d = device_of(label);
      if (d == kNone) {
        note("smi-incomplete", w[0],
             fmt::format("{} ({}) is in the legend and not in the table: where it is can't be known", label,
                         name),
             "paste the whole table");
      } else if (named.insert(label).second) {
        table_.devices[static_cast<size_t>(d)].name = name;
      }
    }
    std::vector<std::string> unnamed;
    for (const SmiDevice& d : table_.devices)
      if (numbered(d.label, "NIC") && !named.contains(d.label)) unnamed.push_back(d.label);
    incomplete(unnamed, "no legend names their devices");
  }

  SmiTable table_;
  std::vector<Words> lines_;
};

}  // namespace

SmiTable parse_smi_table(std::string_view text, const std::string& name) { return SmiTableReader(text, name).read(); }

}  // namespace muster::topology
