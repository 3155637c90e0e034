// A library that is looked for at run time, and let go at the end.
#pragma once

#include <dlfcn.h>

#include <string>

namespace muster::topology {

class SharedLibrary {
 public:
  // `name`: as for dlopen.
  explicit SharedLibrary(const std::string& name) : handle_(dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL)) {}
  ~SharedLibrary() {
    if (handle_) dlclose(handle_);
  }
  SharedLibrary(const SharedLibrary&) = delete;
  SharedLibrary& operator=(const SharedLibrary&) = delete;
  explicit operator bool() const { return handle_ != nullptr; }

  // nullptr: it has no such function. Only of a library that was found.
  template <class F>
  F* function(const char* name) const {
    return reinterpret_cast<F*>(dlsym(handle_, name));
  }

 private:
  void* handle_;
};

}  // namespace muster::topology
