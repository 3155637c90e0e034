// Options are data: one row each in one table (option_table.cpp). Nothing else in the library reads the environment, but
// for what launchers say there of rank and meeting point (bootstrap/launcher.h).
//
// A value comes from the environment, else from the file that NCCL_CONF_FILE names (or ~/.nccl.conf), else from
// /etc/nccl.conf, else it is the default. An empty value is as good as none, and hides what files say.
// A MUSTER_ value that can't be read is an error that names the variable, the value and what is accepted. An NCCL_ value
// that can't be read is a note, and the default counts, as its users expect.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace muster {

enum class OptionType {
  flag,          // MUSTER_: 0 or 1; NCCL_: a number, 0 is off
  integer,       // MUSTER_: decimal, 0 or more; NCCL_: as C writes it, -2 and -2147483648 mean unset
  size,          // bytes; an integer that may have K, M or G behind it
  seconds,       // any number of 0 or more, "inf" too
  text,
  text_or_none,  // set to nothing is a value of its own
  secret,        // a text that is never shown
};

struct Option {
  const char* name;           // the environment variable; '*' at the end: all variables that begin so
  OptionType type;
  const char* default_value;  // as one would write it in the environment
  const char* help;           // one line
  bool must_agree = false;    // differs between ranks = error at init
  const char* no_effect = nullptr;  // null: honoured. Else it may be set, is checked to be readable, and this is why nothing follows
};

std::span<const Option> option_table();

// Something to tell the user about what is set. Nothing else comes of it.
struct OptionNote {
  bool warning;
  std::string name;  // of the variable, or the file
  std::string text;
};

// A snapshot of environment and files, taken when a communicator is made (never kept in a static). Copies are cheap.
class Options {
 public:
  struct Value {
    bool set = false;     // and not empty, and readable
    std::string text;     // as it was written, or the default
    std::string source;   // "environment", "FILE:LINE"; empty: default
    int64_t integer = 0;
    std::chrono::nanoseconds seconds{0};
  };

  // Throws invalid_usage for a MUSTER_ value that can't be read.
  static Options from_environment(const char* system_file = "/etc/nccl.conf");
  // The same, but never throws for a value: problem() says what from_environment would have thrown.
  static Options inspect(const char* system_file = "/etc/nccl.conf");

  bool flag(std::string_view name) const;
  int64_t integer(std::string_view name) const;                   // also OptionType::size: bytes
  std::chrono::nanoseconds seconds(std::string_view name) const;  // 30 years at most, which "inf" means, too
  const std::string& text(std::string_view name) const;           // also text_or_none and secret
  bool is_set(std::string_view name) const;

  // "NAME=value" for each must_agree option, in table order; compared between ranks at init.
  std::vector<std::string> agreement() const;

  const std::vector<Value>& values() const { return content_->values; }  // in table order
  const std::vector<OptionNote>& notes() const { return content_->notes; }
  const std::string& home() const { return content_->home; }  // of the user, for files; empty: HOME isn't set
  const std::string& problem() const { return content_->problem; }

 private:
  struct Content {
    std::vector<Value> values;
    std::vector<OptionNote> notes;
    std::string problem, home;
  };
  const Value& value(std::string_view name, std::initializer_list<OptionType> types) const;
  std::shared_ptr<const Content> content_;
};

}  // namespace muster
