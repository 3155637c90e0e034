// The options as C programs ask for them.
#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/log_options.h"
#include "base/options.h"
#include "nccl/entries.h"
#include "nccl/last_error.h"

namespace muster::nccl {
namespace {

// A handle is the option's row.
const Option& option_of(ncclParamHandle_t handle) {
  const auto table = option_table();
  const auto address = reinterpret_cast<uintptr_t>(handle), first = reinterpret_cast<uintptr_t>(table.data());
  if (!handle || address < first || address >= first + table.size_bytes() ||
      (address - first) % sizeof(Option) != 0)
    fail(Result::invalid_argument, "{} is no handle of ncclParamBind", static_cast<void*>(handle));
  return table[(address - first) / sizeof(Option)];
}

bool names_many(const Option& o) { return std::string_view(o.name).ends_with('*'); }

const Option& option_named(const char* key) {
  require_pointer(key, "key");
  for (const Option& o : option_table())
    if (std::string_view(o.name) == key && !names_many(o)) return o;
  fail(Result::invalid_argument,
       "'{}' is no option. docs/options.md and ncclParamGetAllParameterKeys have them all", key);
}

Options::Value value_of(const Option& o) {
  return Options::inspect().values()[static_cast<size_t>(&o - option_table().data())];
}

bool is_number(const Option& o) {
  return o.type == OptionType::flag || o.type == OptionType::integer || o.type == OptionType::size;
}

std::string text_of(const Option& o) {
  if (o.type == OptionType::secret) fail(Result::invalid_usage, "{} is a secret and isn't shown", o.name);
  return value_of(o).text;
}

template <class T>
ncclResult_t get_number(ncclParamHandle_t handle, T* out) {
  return query([&] {
    const Option& o = option_of(handle);
    require_pointer(out, "out");
    if (!is_number(o))
      fail(Result::invalid_argument, "{} is no whole number. Read it with ncclParamGetStr", o.name);
    const int64_t n = value_of(o).integer;
    if (!std::in_range<T>(n))
      fail(Result::invalid_argument, "{} is {}, and the type asked for holds {} to {}", o.name, n,
           std::numeric_limits<T>::min(), std::numeric_limits<T>::max());
    *out = static_cast<T>(n);
  });
}

}  // namespace

ncclResult_t ParamBind(ncclParamHandle_t* out, const char* key) {
  return query([&] {
    require_pointer(out, "out");
    *out = reinterpret_cast<ncclParamHandle_t>(const_cast<Option*>(&option_named(key)));
  });
}

ncclResult_t ParamGetI8(ncclParamHandle_t h, int8_t* out) { return get_number(h, out); }
ncclResult_t ParamGetI16(ncclParamHandle_t h, int16_t* out) { return get_number(h, out); }
ncclResult_t ParamGetI32(ncclParamHandle_t h, int32_t* out) { return get_number(h, out); }
ncclResult_t ParamGetI64(ncclParamHandle_t h, int64_t* out) { return get_number(h, out); }
ncclResult_t ParamGetU8(ncclParamHandle_t h, uint8_t* out) { return get_number(h, out); }
ncclResult_t ParamGetU16(ncclParamHandle_t h, uint16_t* out) { return get_number(h, out); }
ncclResult_t ParamGetU32(ncclParamHandle_t h, uint32_t* out) { return get_number(h, out); }
ncclResult_t ParamGetU64(ncclParamHandle_t h, uint64_t* out) { return get_number(h, out); }

ncclResult_t ParamGetStr(ncclParamHandle_t handle, const char** out) {
  return query([&] {
    thread_local std::string text;
    const Option& o = option_of(handle);
    require_pointer(out, "out");
    text = text_of(o);
    *out = text.c_str();
  });
}

ncclResult_t ParamGet(ncclParamHandle_t handle, void* out, int most, int* length) {
  return query([&] {
    const Option& o = option_of(handle);
    require_pointer(out, "out");
    std::string bytes;
    if (is_number(o)) {
      const int64_t n = value_of(o).integer;
      bytes.assign(reinterpret_cast<const char*>(&n), sizeof n);
    } else {
      bytes = text_of(o);
    }
    const int n = static_cast<int>(bytes.size());
    if (length) *length = n;
    if (most < n) fail(Result::invalid_argument, "{} has {} bytes, and maxLen is {}", o.name, n, most);
    std::memcpy(out, bytes.data(), bytes.size());
  });
}

ncclResult_t ParamGetParameter(const char* key, const char** value, int* length) {
  return query([&] {
    thread_local std::string text;
    const Option& o = option_named(key);
    require_pointer(value, "value");
    text = text_of(o);
    *value = text.c_str();
    if (length) *length = static_cast<int>(text.size());
  });
}

ncclResult_t ParamGetAllParameterKeys(const char*** table, int* length) {
  return query([&] {
    thread_local std::vector<const char*> keys;
    require_pointer(table, "table");
    require_pointer(length, "tableLen");
    keys.clear();
    for (const Option& o : option_table())
      if (!names_many(o)) keys.push_back(o.name);
    *table = keys.data();
    *length = static_cast<int>(keys.size());
  });
}

void ParamDumpAll() {
  (void)query([] {
    const Options options = Options::inspect();
    for (size_t i = 0; i < option_table().size(); ++i) {
      const Option& o = option_table()[i];
      const Options::Value& v = options.values()[i];
      if (names_many(o)) continue;
      log_plain(fmt::format("{}={} ({})", o.name, o.type == OptionType::secret ? "*" : v.text,
                            v.source.empty() ? "default" : v.source));
    }
  });
}

void ResetDebugInit() {
  (void)query([] { start_logging(Options::from_environment(), false); });
}

}  // namespace muster::nccl
