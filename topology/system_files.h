// What the kernel says in files, below a root that tests may put in "/"'s place. Nothing here fails: what
// isn't there, can't be read or isn't what it should be is nothing. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace muster::topology {

class SystemFiles {
 public:
  explicit SystemFiles(std::string root) : root_(std::move(root)) {}

  bool is_this_machine() const { return root_.empty(); }
  bool exists(std::string_view path) const;
  // Up to a megabyte, without blanks and line ends around it.
  std::optional<std::string> text(std::string_view path) const;
  std::string bytes(std::string_view path, size_t most) const;  // as they are
  // Decimal, or hexadecimal with 0x. `text`, if given, is what stood there.
  std::optional<int64_t> integer(std::string_view path, std::string* text = nullptr) const;
  std::vector<std::string> list(std::string_view folder) const;  // names in order, 65536 at most
  // Where links lead, without the root: "/sys/devices/pci0000:00/0000:00:01.0". Nothing where they lead
  // nowhere.
  std::optional<std::string> resolve(std::string_view path) const;

 private:
  std::string root_;
};

}  // namespace muster::topology
